#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC1091,SC2016,SC2154
# kolorun in jobs of a real Slurm with two nodes, both of them this host. Ends with status 77 unless
# Slurm and munge are installed (Debian's slurmctld, slurmd, slurm-client and munge), and unless it
# runs as root.
#
# Usage: slurm_test.sh KOLORUN RANK_PROGRAM DIRECTORY
for program in munged slurmctld slurmd srun sbatch; do
  command -v "$program" >/dev/null || { echo "$program is not installed"; exit 77; }
done
[[ $(id -u) == 0 ]] || { echo "slurmd needs root"; exit 77; }
source "$(cd "$(dirname "$0")/../../rendezvous" && pwd)/jobs.sh"
for name in $(compgen -e SLURM; compgen -e PBS_; compgen -e LSB_); do unset "$name"; done
unset KOLO_RSH
export KOLO_CONTROL_INTERFACE=lo

end_slurm() {
  local file
  for file in slurmd-n1.pid slurmd-n2.pid slurmctld.pid munge/pid; do
    [[ -s $work/$file ]] && kill "$(cat "$work/$file")" 2>/dev/null
  done
}
trap end_slurm EXIT
mkdir munge state spool-n1 spool-n2
chmod 700 munge
(umask 077 && head -c 64 /dev/urandom >munge/key)
port=$((21000 + $$ % 3000 * 3))
host=$(hostname)
cat >slurm.conf <<CONF
ClusterName=two
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$port
AuthType=auth/munge
AuthInfo=socket=$work/munge/socket
SlurmUser=root
StateSaveLocation=$work/state
SlurmdSpoolDir=$work/spool-%n
SlurmctldPidFile=$work/slurmctld.pid
SlurmdPidFile=$work/slurmd-%n.pid
SlurmctldLogFile=$work/slurmctld.log
SlurmdLogFile=$work/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
JobAcctGatherType=jobacct_gather/none
MailProg=/bin/true
SlurmdParameters=config_overrides
SchedulerParameters=batch_sched_delay=0
NodeName=n1 NodeHostname=$host NodeAddr=127.0.0.1 Port=$((port + 1)) CPUs=4 State=UNKNOWN
NodeName=n2 NodeHostname=$host NodeAddr=127.0.0.1 Port=$((port + 2)) CPUs=4 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
CONF
# slurmd looks for cgroups even where nothing uses them.
echo 'CgroupPlugin=cgroup/v1' >cgroup.conf
export SLURM_CONF=$work/slurm.conf
start_slurm() {
  munged --force --socket="$work/munge/socket" --key-file="$work/munge/key" --pid-file="$work/munge/pid" \
    --log-file="$work/munge/log" --seed-file="$work/munge/seed" &&
    slurmctld -f "$SLURM_CONF" && slurmd -N n1 -f "$SLURM_CONF" && slurmd -N n2 -f "$SLURM_CONF"
}
start_slurm || { echo "Slurm does not start here"; exit 77; }
for ((attempt = 0; attempt < 300; attempt++)); do
  (($(sinfo --noheader --Node --format=%T 2>/dev/null | grep -cx idle) == 2)) && break
  sleep 0.1 # both nodes have registered
done
(($(sinfo --noheader --Node --format=%T | grep -cx idle) == 2)) || fail "Slurm: $(tail -n 20 ./*.log)"

# batch OPTIONS COMMAND: the output and the status of a batch job. `sbatch --wait` looks for its end
# only every few seconds.
batch() {
  rm -f batch.status
  # shellcheck disable=SC2086
  sbatch --quiet $1 --output=batch.log --open-mode=truncate \
    --wrap "$2; echo \$? >batch.new; mv batch.new batch.status" || return
  until [[ -e batch.status ]]; do sleep 0.05; done
  cat batch.log
  return "$(cat batch.status)"
}
expects() { expect "$1" "$2" "$3" bash -c "$(declare -f batch); batch \"\$@\"" batch "${@:4}"; }
where='sh -c "echo \$RANK \$WORLD_SIZE \$LOCAL_RANK \$SLURMD_NODENAME"'

expects "all tasks" 0 $'^0 6 0 n1$\n^3 6 3 n1$\n^4 6 0 n2$\n^5 6 1 n2$' --ntasks=6 "$kolorun $where"
expects "a session" 0 $'^done: rank 0 of 6, commit 5$\n^done: rank 5 of 6, commit 5$' \
  --ntasks=6 "$kolorun $rank_program 5"
expects "tasks with several processors" 0 $'^1 4 1 n1$\n^3 4 1 n2$' \
  "--nodes=2 --ntasks-per-node=2 --cpus-per-task=2" "$kolorun $where"
expects "no tasks" 0 $'^1 2 0 n2$' --nodes=2 "$kolorun $where"
expects "slots" 0 $'^7 8 3 n2$' --nodes=2 "$kolorun --slots 4 $where"
expects "too many processes" 2 "Slurm's job [0-9]+ has 2 slots \($host:1,n2:1\), too few for 3 processes" \
  --nodes=2 "$kolorun -np 3 $where"
expects "one node" 0 $'^3 4 3 n1$' --ntasks=4 "$kolorun $where"
expects "fewer than the tasks" 0 $'^1 2 1 n1$' --ntasks=6 "$kolorun -np 2 $where"
expects "in each task" 2 "srun has started kolorun 2 times" --ntasks=2 "srun --quiet $kolorun -np 2 true"
expects "in one task" 0 $'^2 3 2 n1$' --ntasks=2 "srun --quiet --ntasks=1 $kolorun -np 3 $where"
expects "a failure on another node" 3 "^kolorun: the job has failed: rank 1 .* on n2.*status 3" \
  --nodes=2 "$kolorun sh -c '[ \$RANK = 0 ] || exit 3; sleep 30'"
expect "a shell of salloc" 0 $'^1 2 0 n2$' salloc --quiet --nodes=2 "$kolorun" sh -c \
  'echo $RANK $WORLD_SIZE $LOCAL_RANK $SLURMD_NODENAME'

# scancel reaches the processes of both nodes.
touch {pid,told}.{0,1}
job=$(sbatch --parsable --nodes=2 --output=cancel.log --wrap "exec $kolorun --grace 5 sh -c \
  'trap \"echo \\\$\$ >told.\$RANK; exit 0\" TERM; echo \$\$ >pid.\$RANK; while :; do sleep 0.1; done'")
meets "scancel" pid.0 . && meets "scancel" pid.1 . && scancel "$job"
meets "scancel" told.0 . && meets "scancel" told.1 .
gone "scancel" "$(cat pid.0)" "$(cat pid.1)"
conclude "kolorun in Slurm"
