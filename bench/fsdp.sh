#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Kolo's FullySharded beside PyTorch's FSDP: the same model, weights, data and optimizer on the ranks of this
# host, in turns.
#
# Usage: fsdp.sh BENCH PYTHON RANKS ROUNDS [OPTION...]
#   BENCH    bench-fully-sharded, built with the LibTorch of PYTHON's PyTorch: after ./dev torch2,
#            cmake --build build/torch2 --target bench-fully-sharded
#   PYTHON   a Python with PyTorch
#   OPTION   of bench-fully-sharded, such as --layers 8
#
# Prints rows of fsdp.csv: ranks, kind, the median milliseconds of a step, the most resident memory that the
# training adds in MB (10^6 bytes), the mean loss after the last step, and the time as a ratio to that of
# FSDP in the same round, a median.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
bench=$1 python=$2 ranks=$3 rounds=$4
shift 4
export OMP_NUM_THREADS=1
model=$(mktemp)
rows=$(mktemp)
trap 'rm -f "$model" "$rows"' EXIT
start=(mpirun --oversubscribe -np "$ranks")

ours() { # the columns of fsdp_step.py
  "${start[@]}" "$bench" --rounds 1 --steps 4 --save "$model" "$@" |
    awk -F , -v OFS=, -v round="$round" '{ print round, $1, "Kolo " $2, $5, $7, $8 }'
}
theirs() {
  "${start[@]}" "$python" "$here/fsdp_step.py" "$model" --rounds 1 --steps 4 |
    awk -v round="$round" '{ print round "," $0 }'
}

round=0
ours "$@" >/dev/null # makes the model
for ((round = 1; round <= rounds; ++round)); do
  if ((round % 2 == 1)); then
    ours "$@"
    theirs
  else
    theirs
    ours "$@"
  fi
done >>"$rows"
python3 - "$rows" <<'END'
import statistics, sys
kinds, base = {}, {}
for line in open(sys.argv[1]):
    round_, ranks, kind, ms, memory, loss = line.strip().split(",")
    kinds.setdefault((ranks, kind), []).append((round_, float(ms), float(memory), loss))
    if kind.startswith("FSDP"):
        base[round_] = float(ms)
for (ranks, kind), rows in kinds.items():
    ratio = statistics.median(ms / base[round_] for round_, ms, _, _ in rows)
    print(f"{ranks},{kind},{statistics.median(row[1] for row in rows):.0f},{max(row[2] for row in rows):.0f},"
          f"{rows[-1][3]},{ratio:.2f}")
END
