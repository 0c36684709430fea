#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC1091,SC2016,SC2154
# kolorun in jobs of Slurm, PBS and LSF. Recorded environments stand for the jobs, and scripts that
# run everything on this host stand for srun, blaunch and ssh.
#
# Usage: allocation_test.sh KOLORUN RANK_PROGRAM DIRECTORY
rendezvous=$(cd "$(dirname "$0")/../../rendezvous" && pwd)
source "$rendezvous/jobs.sh"
export FAKE_SSH_DIR=$work KOLO_CONTROL_INTERFACE=lo
# Those of a job around this test.
for name in $(compgen -e SLURM; compgen -e PBS_; compgen -e LSB_); do unset "$name"; done
unset KOLO_RSH
mkdir bin
cat >bin/srun <<'SRUN'
#!/bin/sh
echo "srun $*" >>"$FAKE_SSH_DIR/calls"
while :; do
  case $1 in
    --nodelist=*) export FAKE_HOST="${1#*=}" SLURM_STEP_ID=1 SLURM_STEP_NUM_TASKS=1 ;;
    --*) ;;
    *) break ;;
  esac
  shift
done
exec "$@"
SRUN
cat >bin/blaunch <<'BLAUNCH'
#!/bin/sh
echo "blaunch $*" >>"$FAKE_SSH_DIR/calls"
export FAKE_HOST="$1"
shift
exec sh -c "$*"
BLAUNCH
cp "$rendezvous/fake_ssh.sh" bin/ssh
# fake_ssh.sh takes no options.
sed -i '/^host=/i while [ "${1#-}" != "$1" ]; do [ "$1" != -o ] || shift; shift; done' bin/ssh
chmod +x bin/*
export PATH=$work/bin:$PATH
where='echo $RANK $WORLD_SIZE ${FAKE_HOST:-here}'
own=$(hostname)

slurm=(env SLURM_JOB_ID=7 "SLURM_JOB_NODELIST=n[08-10]" "SLURM_TASKS_PER_NODE=2(x2),1" SLURMD_NODENAME=n08)
# As after a login by ssh, from a computer that is not there.
export SSH_CONNECTION="192.0.2.1 40000 192.0.2.2 22"
expect "Slurm" 0 $'^0 5 here$\n^1 5 here$\n^2 5 n09$\n^3 5 n09$\n^4 5 n10$' "${slurm[@]}" "$kolorun" sh -c "$where"
grep -q '^srun .*--overlap .*--nodelist=n09 [^ ]*kolorun --agent$' calls || fail "Slurm: $(cat calls)"
expect "a session" 0 '^done: rank 4 of 5, commit 5$' "${slurm[@]}" "$kolorun" "$rank_program" 5
rm calls
expect "hosts that are not needed" 0 $'^0 3 here$\n^2 3 n09$' "${slurm[@]}" "$kolorun" -np 3 sh -c "$where"
(($(wc -l <calls) == 1)) || fail "hosts that are not needed: $(cat calls)"
expect "too many processes" 2 \
  "Slurm's job 7 has 5 slots \($own:2,n09:2,n10:1\), too few for 6 processes: ask Slurm for more tasks" \
  "${slurm[@]}" "$kolorun" -np 6 true
expect "other slots" 0 $'^8 9 n10$' "${slurm[@]}" "$kolorun" --slots 3 sh -c "$where"
expect "in words" 0 "^kolorun: the hosts are those of Slurm's job 7 \($own:2,n09:2,n10:1\)$" \
  "${slurm[@]}" "$kolorun" -v -np 1 true
rm calls
expect "one host" 0 $'^0 2 here$\n^1 2 here$' \
  "${slurm[@]}" SLURM_JOB_NODELIST=n08 SLURM_TASKS_PER_NODE=2 "$kolorun" sh -c "$where"
expect "the allocation is ignored" 0 $'^3 4 here$' "${slurm[@]}" "$kolorun" -H localhost:4 sh -c "$where"
[[ ! -e calls ]] || fail "one host: $(cat calls)"
expect "too many processes on one host" 2 "Slurm's job 7 has 2 slots .* too few for 3 processes" \
  "${slurm[@]}" SLURM_JOB_NODELIST=n08 SLURM_TASKS_PER_NODE=2 "$kolorun" -np 3 true
expect "another command" 0 '^4 5 n10$' "${slurm[@]}" KOLO_RSH=ssh "$kolorun" sh -c "$where"
grep -q '^n10 ' calls || fail "another command: $(cat calls)"
expect "in each task" 2 "srun has started kolorun 8 times in Slurm's job 7: each would start a job of its own" \
  "${slurm[@]}" SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=8 "$kolorun" -np 8 true
expect "in one task" 0 '^3 4 here$' \
  "${slurm[@]}" SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=1 "$kolorun" -np 4 sh -c "$where"
expect "from another host" 0 $'^0 2 n08$\n^1 2 n08$' \
  "${slurm[@]}" SLURMD_NODENAME= SLURM_JOB_NODELIST=n08 SLURM_TASKS_PER_NODE=2 "$kolorun" sh -c "$where"

unset SSH_CONNECTION
rm calls
printf '%s.example.org\nb\n%s\nb\n' "$own" "$own" >nodes
expect "PBS" 0 $'^0 4 here$\n^1 4 here$\n^2 4 b$\n^3 4 b$' \
  env PBS_JOBID=8 PBS_NODEFILE=nodes "$kolorun" --network-interface lo sh -c "$where"
grep -q '^b ' calls || fail "PBS: $(cat calls)"
expect "too many in PBS" 2 "PBS's job 8 has 4 slots \($own:2,b:2\), too few for 5 processes: ask PBS" \
  env PBS_JOBID=8 PBS_NODEFILE=nodes "$kolorun" -np 5 true
expect "LSF" 0 $'^0 2 here$\n^1 2 b$' \
  env LSB_JOBID=9 LSB_MCPU_HOSTS="$own 1 b 1" "$kolorun" sh -c "$where"
grep -q "^blaunch b '[^ ]*kolorun' --agent$" calls || fail "LSF: $(cat calls)"
conclude "kolorun in batch jobs"
