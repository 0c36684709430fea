#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Starts N processes with the variables that torchrun, or srun without PMIx, sets for the processes
# of one host, or with _on_hosts of two made-up hosts. The status is that of the last process that
# failed, or 0.
#
# Usage: by_variables.sh torchrun|srun[_on_hosts] N PROGRAM [ARGUMENTS...]
set -uo pipefail
how=$1
n=$2
shift 2
port=$((10000 + RANDOM % 10000))
processes=()
hosts=1
export KOLO_TEST_STARTER=$$  # for the double of NCCL
if [[ $how == *_on_hosts ]]; then
  hosts=2
  export KOLO_TEST_RANKS_PER_HOST=$((n / 2))
fi
for ((rank = 0; rank < n; rank++)); do
  if [[ $how == torchrun* ]]; then
    variables=(RANK=$rank LOCAL_RANK=$rank WORLD_SIZE="$n" LOCAL_WORLD_SIZE=$((n / hosts))
      GROUP_RANK=0 MASTER_ADDR=localhost MASTER_PORT=$port TORCHELASTIC_RUN_ID=none)
  else
    variables=(SLURM_JOB_ID=$port SLURM_STEP_ID=0 SLURM_PROCID=$rank SLURM_LOCALID=$rank
      SLURM_NTASKS="$n" SLURM_STEP_NUM_TASKS="$n" SLURM_STEP_NUM_NODES=$hosts
      SLURM_STEP_NODELIST="localhost,node[1-2]")
  fi
  timeout 100 env "${variables[@]}" "$@" &
  processes+=($!)
done
status=0
for process in "${processes[@]}"; do wait "$process" || status=$?; done
exit $status
