#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The time of a job that only starts, meets at a barrier and ends, on one host: with MPI alone, and
# with a session of Kolo. Prints CSV: medians of alternating rounds in seconds, and the median of
# the rounds' differences.
# Usage: start_up.sh BENCH_START_UP [ROUNDS [RANKS]]
#   ROUNDS  number of rounds (5)
#   RANKS   numbers of ranks ("2 4 16 64")
set -euo pipefail
program=$1 rounds=${2:-5} ranks=${3:-2 4 16 64}

seconds() { # RANKS WITH
  local begin=$EPOCHREALTIME
  mpirun -np "$1" "$program" "$2"
  awk -v begin="$begin" -v end="$EPOCHREALTIME" 'BEGIN { printf "%.3f\n", end - begin }'
}

echo "ranks,rounds,mpi_s,kolo_s,more_s"
for np in $ranks; do
  for ((round = 0; round < rounds; ++round)); do
    mpi=$(seconds "$np" mpi)
    echo "$mpi $(seconds "$np" kolo)"
  done | python3 -c '
import statistics, sys
pairs = [tuple(map(float, line.split())) for line in sys.stdin]
mpi, kolo = zip(*pairs)
more = [k - m for m, k in pairs]
print(*sys.argv[1:], *(f"{statistics.median(values):.2f}" for values in (mpi, kolo, more)), sep=",")' "$np" "$rounds"
done
