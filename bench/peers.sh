#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Kolo, Horovod and PyTorch's DistributedDataParallel on the same set of gradients, in
# alternating runs: microseconds, and each peer's time relative to Kolo's.
# Usage: peers.sh KOLO_PERF PYTHON SET [RANKS [ROUNDS]]
#   PYTHON has horovod.torch; SET is one of kolo-perf --gradients. PEERS="horovod horovod_tuned ddp"
#   in the environment says which.
set -euo pipefail
kolo_perf=$1 python=$2 set=$3 ranks=${4:-2} rounds=${5:-3}
here=$(dirname "$0")
read -ra peers <<<"${PEERS:-horovod horovod_tuned ddp}"
# As for large messages; see docs/performance.md.
tuned=(--mca coll_tuned_use_dynamic_rules 1 --mca coll_tuned_allreduce_algorithm 5
  --mca coll_tuned_allreduce_algorithm_segmentsize 524288)

file=$(mktemp)
trap 'rm -f "$file"' EXIT
mpirun -np 1 "$kolo_perf" --list-gradients "$set" >"$file"

median() { sort -g | awk '{ v[NR] = $1 } END { print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'; }

run_kolo() {
  mpirun -np "$ranks" "$kolo_perf" --gradients "$file" --csv 2>/dev/null |
    awk -F, '/kolo_us/ { for (i = 1; i <= NF; ++i) if ($i == "kolo_us") column = i; next }
             column { print $column }' | tail -n 1
}
run_horovod() { # [mpirun options ...]
  mpirun -np "$ranks" "$@" "$python" "$here/horovod_gradients.py" "$file" 2>/dev/null | tail -n 1
}
run_ddp() { mpirun -np "$ranks" "$python" "$here/ddp_gradients.py" "$file" 2>/dev/null | tail -n 1; }

declare -A ratios
for ((round = 1; round <= rounds; ++round)); do
  kolo=$(run_kolo)
  line="round $round: Kolo $kolo us"
  for peer in "${peers[@]}"; do
    case $peer in
      horovod) took=$(run_horovod) ;;
      horovod_tuned) took=$(run_horovod "${tuned[@]}") ;;
      ddp) took=$(run_ddp) ;;
    esac
    ratio=$(awk "BEGIN { printf \"%.2f\", $took / $kolo }")
    ratios[$peer]+="$ratio"$'\n'
    line+=", $peer $took us ($ratio)"
  done
  echo "$line"
done
for peer in "${peers[@]}"; do
  echo "$set on $ranks ranks, median ratio of $peer: $(printf '%s' "${ratios[$peer]}" | median)"
done
