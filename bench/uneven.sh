#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Measures the example `uneven` on 2 ranks, of which one has half the speed of the other. Prints the columns of
# docs/measurements/uneven.csv: for each run the speeds of the ranks alone, and for each epoch the shares, the speed of
# both together and its percentage of the sum. A run counts only if other processes used less than 2 % of the
# processors meanwhile; others are repeated.
# Usage: bench/uneven.sh PROGRAM RUNS [EPOCHS]
set -euo pipefail
program=$1 runs=$2 epochs=${3:-5}

# The time in which processors were busy since the start of the system, and that of the ended children of this shell,
# in ticks. User, nice, system, interrupts and stolen time are busy.
busy() { awk '/^cpu / { print $2 + $3 + $4 + $7 + $8 + $9 }' /proc/stat; }
own() { awk '{ print $16 + $17 }' "/proc/$$/stat"; }

# Runs a command. Fails if other processes used 2 % of the processors or more meanwhile.
undisturbed() {
  local busy_before own_before begin foreign ms
  busy_before=$(busy) own_before=$(own) begin=$(date +%s%N)
  "$@"
  foreign=$(($(busy) - busy_before - $(own) + own_before))
  ms=$((($(date +%s%N) - begin) / 1000000))
  ((foreign * 1000 * 50 < ms * $(nproc) * $(getconf CLK_TCK)))
}

output=$(mktemp)
trap 'rm -f "$output"' EXIT
measure() { mpirun -np 2 "$program" 1 "$epochs" >"$output"; }

echo run,epoch,shares,alone,examples_per_second,percent
for ((run = 1; run <= runs; ++run)); do
  until undisturbed sleep 2 && undisturbed measure; do :; done
  awk -v run="$run" '
    /^alone/ { alone = alone (alone ? " + " : "") $2 }
    /^epoch/ { print run "," $2 + 0 "," $6 " " $7 + 0 "," alone "," $8 "," $10 }' "$output"
done
