#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checkpoints of programs in C, in a fresh directory, and a rank that leaves before a save.
# Usage: checkpoint.sh EXPECT PROGRAM DIRECTORY MPIRUN -np RANKS ...
set -euo pipefail
source "$(dirname "$0")/../support/fresh_directory.sh"
expect=$1 program=$2 directory=$3
shift 3

fresh_directory "$directory"
bash "$expect" 0 "^all checkpoints are right$" "$@" "$program" "$directory"
if [[ $3 != 1 ]]; then
  bash "$expect" 0 "^rank 0 cannot save$" "$@" "$program" "$directory" left
fi
