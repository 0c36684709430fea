#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Starts ranks with Slurm: installs Debian's Slurm and Kolo's packages in a bare Debian 12, starts
# munged, slurmctld and slurmd there, and runs programs with srun, with PMIx and without it, and
# with mpirun and kolorun in batch jobs, which also stop in good order.
#
# Usage: tests/hosts/slurm.sh DIRECTORY   (as root; needs mmdebstrap)
#   DIRECTORY        folder of Kolo's packages: ./dev packages
#   KOLO_BARE_ROOT   keep the root in this folder, for a second run
set -euo pipefail
packages=$(cd "$1" && pwd)
# shellcheck source=tests/package/with_bare_root.sh
source "$(dirname "$0")/../package/with_bare_root.sh"
rm -rf --one-file-system "$root/kolo"
mkdir -p "$root/kolo" "$root/etc/slurm"
cp "$packages"/*.deb "$root/kolo/"
cp "$sources"/{tests/session/launcher_program.cpp,examples/basics/quickstart.cpp,tests/support/expect.sh} \
  "$sources/tests/stops/stop_trainer_program.cpp" \
  "$sources/examples/launch/job.sbatch" "$root/kolo/"

# Four CPUs, whatever the host has; no cgroups.
cat >"$root/etc/slurm/slurm.conf" <<'CONF'
ClusterName=bare
SlurmctldHost=bare(127.0.0.1)
AuthType=auth/munge
SlurmUser=root
StateSaveLocation=/var/spool/slurmctld
SlurmdSpoolDir=/var/spool/slurmd
SlurmctldLogFile=/var/log/slurmctld.log
SlurmdLogFile=/var/log/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
JobAcctGatherType=jobacct_gather/none
MailProg=/bin/true
SlurmdParameters=config_overrides
NodeName=bare NodeAddr=127.0.0.1 CPUs=4 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
CONF
# slurmd looks for cgroups even where nothing uses them.
echo 'CgroupPlugin=cgroup/v1' >"$root/etc/slurm/cgroup.conf"

cat >"$root/kolo/inside.sh" <<'INSIDE'
set -euo pipefail
export OMP_NUM_THREADS=1
say() { printf '\n== %s\n' "$*"; }
cd /kolo
if ! command -v slurmctld >/dev/null; then
  say "Installation"
  apt-get update -qq
  apt-get install -y -qq --no-install-recommends slurmctld slurmd slurm-client munge g++ pkg-config libfmt-dev \
    libopenmpi-dev openmpi-bin >install.log 2>&1 || { cat install.log; exit 1; }
fi
apt-get install -y -qq --no-install-recommends --reinstall ./libkolo0.1_*.deb ./libkolo-dev_*.deb \
  ./kolo-tools_*.deb >install.log 2>&1 || { cat install.log; exit 1; }
for program in launcher_program quickstart stop_trainer_program; do
  sed 's|"kolo/kolo.hpp"|<kolo/kolo.hpp>|' "$program.cpp" >installed.cpp
  g++ -std=c++20 -O1 installed.cpp $(pkg-config --cflags --libs kolo) -lfmt -o "$program"
done

say "munged, slurmctld, slurmd"
mkdir -p /run/munge /var/spool/slurmctld /var/spool/slurmd
chown munge: /run/munge
setpriv --reuid munge --regid munge --clear-groups munged
slurmctld
slurmd
for ((attempt = 0; attempt < 150; attempt++)); do
  if sinfo --noheader --format=%T 2>/dev/null | grep -qx idle; then break; fi
  sleep 0.1 # the node has registered
done
sinfo --Node --long
sinfo --noheader --format=%T | grep -qx idle || { tail -n 20 /var/log/slurm*.log; exit 1; }
srun --version
srun --mpi=list 2>&1 | tr '\n' ' '

# must TITLE STATUS PATTERN COMMAND...
must() {
  say "$1"
  timeout 120 bash expect.sh "${@:2}"
}
for ranks in 2 4; do
  all="rank 0 of $ranks, sum $ranks .*rank 0 of $ranks, sum $ranks "
  must "srun with PMIx, $ranks ranks" any "$all" srun --mpi=pmix --ntasks=$ranks ./launcher_program
  must "srun with PMIx, over MPI, $ranks ranks" 0 "^$ranks ranks, .* $ranks received" \
    env KOLO_CPU_OPERATIONS=mpi srun --mpi=pmix --ntasks=$ranks ./quickstart
  must "srun without PMIx, $ranks ranks" any "$all" \
    srun --mpi=none --nodes=1 --ntasks=$ranks ./launcher_program
  must "srun without PMIx, $ranks ranks" 0 "^$ranks ranks, .* $ranks received" \
    srun --mpi=none --nodes=1 --ntasks=$ranks ./quickstart
  must "srun without PMIx has no MPI, $ranks ranks" nonzero "cpu_operations|KOLO_CPU_OPERATIONS" \
    env KOLO_CPU_OPERATIONS=mpi srun --mpi=none --nodes=1 --ntasks=$ranks ./quickstart
  must "sbatch and mpirun, $ranks ranks" 0 "^$ranks ranks, .* $ranks received" \
    bash -c "sbatch --wait --ntasks=$ranks --output=batch.log \
      --wrap 'mpirun --bind-to none ./quickstart'; cat batch.log"
done
# Not more ranks than this host has cores: the script binds them.
must "job.sbatch" 0 "^\[1,0\]<stdout>:1 ranks, .* 1 received" \
  bash -c "sbatch --wait --nodes=1 --ntasks-per-node=1 --cpus-per-task=1 --output=batch.log \
    --open-mode=truncate job.sbatch ./quickstart; cat batch.log"
must "kolo-perf by srun with PMIx" 0 "allreduce" \
  srun --mpi=pmix --ntasks=2 kolo-perf --sizes 4,64K --iterations 2
must "Two steps of a job at once, without PMIx" any "(rank 0 of 2, sum 2 .*){4}" \
  salloc --quiet --ntasks=4 bash -c 'for step in 1 2; do
    srun --mpi=none --exact --nodes=1 --ntasks=2 ./launcher_program & done; wait'

# stops TITLE ASK COMMAND [OPTION]...: runs the command in a batch job of 4 tasks; ASK and the job's
# number ask it to stop. All ranks must stop after the same step and leave a checkpoint.
stops() {
  say "$1"
  local job steps
  rm -rf run
  mkdir run
  job=$(sbatch --parsable --ntasks=4 --output=stop.log --open-mode=truncate "${@:4}" --wrap "$3")
  for ((attempt = 0; attempt < 300; attempt++)); do
    [[ -s run/rank.0 && -s run/rank.1 && -s run/rank.2 && -s run/rank.3 ]] && break
    sleep 0.1
  done
  $2 "$job"
  while [[ -n $(squeue --noheader --jobs="$job" 2>/dev/null) ]]; do sleep 0.2; done
  cat stop.log
  steps=$(sed -n 's/^rank [0-3] stops after step //p' stop.log)
  (($(wc -l <<<"$steps") == 4 && $(sort -u <<<"$steps" | wc -l) == 1)) ||
    { echo "the ranks do not stop after the same step"; exit 1; }
  ls "run/checkpoints/checkpoint-$(printf '%010d' "${steps%%$'\n'*}").safetensors"
}
train="./stop_trainer_program run 1000000000 2000"
stops "srun: scancel --signal=USR1" "scancel --signal=USR1" "srun --mpi=none --nodes=1 $train"
stops "srun: scancel" scancel "srun --mpi=none --nodes=1 $train"
# The shell of a batch job ends at once, and Slurm then kills what is left.
stops "kolorun: scancel" scancel "exec kolorun -np 4 $train"
stops "kolorun: SIGTERM to all processes" "scancel --full --signal=TERM" "exec kolorun -np 4 $train"
stops "mpirun: scancel --full --signal=USR1" "scancel --full --signal=USR1" \
  "exec mpirun --oversubscribe --bind-to none $train"
# Slurm looks at time limits twice a minute.
stops "srun: before the time limit" true "srun --mpi=none --nodes=1 $train" --time=1 --signal=USR1@45
say "All as expected"
INSIDE
in_root bash /kolo/inside.sh
