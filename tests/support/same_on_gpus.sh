#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A program that takes `cpu` or `cuda` prints the same output for tensors on CPUs, for tensors on
# GPUs over NCCL, and for tensors on GPUs staged through the host.
# Usage: same_on_gpus.sh EXPECT PROGRAM DIRECTORY MPIRUN -np N ...
set -euo pipefail
source "$(dirname "$0")/fresh_directory.sh"
program=$2 directory=$3
shift 3
mpirun=("$@")

run() { # NAME DEVICE
  "${mpirun[@]}" "$program" "$2" >"$directory/$1.out"
  sort -o "$directory/$1.out" "$directory/$1.out"
}

fresh_directory "$directory"
run cpu cpu
KOLO_GPU_OPERATIONS=nccl run nccl cuda
KOLO_GPU_OPERATIONS=staged run staged cuda
[[ -s $directory/cpu.out ]]
diff "$directory/cpu.out" "$directory/nccl.out"
diff "$directory/cpu.out" "$directory/staged.out"
