#!/usr/bin/env bash
# Kolo and Horovod on the same set of gradients, in alternating runs: microseconds and their ratio.
# Usage: horovod.sh KOLO_PERF PYTHON SET [RANKS [ROUNDS [mpirun options ...]]]
#   PYTHON has horovod.torch; SET is a FILE, as for kolo-perf --gradients.
set -euo pipefail
kolo_perf=$1 python=$2 set=$3 ranks=${4:-2} rounds=${5:-3}
shift $(($# < 5 ? $# : 5))
here=$(dirname "$0")

median() { sort -g | awk '{ v[NR] = $1 } END { print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'; }

ratios=()
for ((round = 1; round <= rounds; ++round)); do
  kolo=$(mpirun -np "$ranks" "$@" "$kolo_perf" --gradients "$set" --csv 2>/dev/null |
    awk -F, '/kolo_us/ { for (i = 1; i <= NF; ++i) if ($i == "kolo_us") column = i; next }
             column { print $column }' | tail -n 1)
  horovod=$(mpirun -np "$ranks" "$@" "$python" "$here/horovod_gradients.py" "$set" 2>/dev/null | tail -n 1)
  ratio=$(awk "BEGIN { printf \"%.2f\", $horovod / $kolo }")
  ratios+=("$ratio")
  echo "round $round: Kolo $kolo us, Horovod $horovod us, ratio $ratio"
done
echo "$set on $ranks ranks, median ratio: $(printf '%s\n' "${ratios[@]}" | median)"
