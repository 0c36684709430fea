#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The cost of ReproducibleGradients beside plain averages, for several sizes on 1, 2 and 4 ranks of one host. Prints the
# columns of docs/measurements/reproducible.csv. Each row is the median, by its ratio, of three short runs, because other
# programs may use the machine.
# Usage: bench/reproducible.sh PROGRAM [RUNS]
set -euo pipefail
program=$1 runs=${2:-3}
export OMP_NUM_THREADS=1

# measure RANKS MEGABYTES ROUNDS
measure() {
  local run
  for ((run = 0; run < runs; ++run)); do
    mpirun --oversubscribe -np "$1" "$program" --megabytes "$2" --rounds "$3"
  done | sort -t, -g -k7 | sed -n "$(((runs + 1) / 2))p"
}

echo ranks,megabytes,shards,rounds,usual_ms,reproducible_ms,ratio
for ranks in 1 2 4; do
  measure "$ranks" 1 40
  measure "$ranks" 16 9
  measure "$ranks" 100 3
done
