#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Compares Kolo, Horovod and PyTorch's DistributedDataParallel on the same set of gradients, in
# alternating runs. Prints microseconds, and each peer's time relative to Kolo's.
# Usage: peers.sh KOLO_PERF PYTHON SET [RANKS [ROUNDS]]
#   PYTHON has horovod.torch; SET is one of kolo-perf --gradients. The environment variable PEERS
#   selects the peers (default: "horovod horovod_tuned ddp"; "python" is Kolo's Python package of the
#   same build), and MEMORY the memory of Kolo's tensors: private (the default) or shared. If a peer
#   fails, the script prints its last messages, continues with the other peers, and exits with
#   status 1.
set -euo pipefail
kolo_perf=$1 python=$2 set=$3 ranks=${4:-2} rounds=${5:-3}
here=$(dirname "$0")
read -ra peers <<<"${PEERS:-horovod horovod_tuned ddp}"
for peer in "${peers[@]}"; do
  case $peer in
    horovod | horovod_tuned | ddp | python) ;;
    *) echo "peers.sh: unknown peer '$peer': horovod, horovod_tuned, ddp or python" >&2; exit 2 ;;
  esac
done
# Open MPI's tuning for large messages; see docs/performance.md.
tuned=(--mca coll_tuned_use_dynamic_rules 1 --mca coll_tuned_allreduce_algorithm 5
  --mca coll_tuned_allreduce_algorithm_segmentsize 524288)

file=$(mktemp) errors=$(mktemp)
trap 'rm -f "$file" "$errors"' EXIT
mpirun -np 1 "$kolo_perf" --list-gradients "$set" >"$file"

median() { sort -g | awk '{ v[NR] = $1 } END { print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'; }

# shellcheck disable=SC2317  # measure calls them
run_kolo() {
  mpirun -np "$ranks" "$kolo_perf" --gradients "$file" --memory "${MEMORY:-private}" --csv |
    awk -F, '/kolo_us/ { for (i = 1; i <= NF; ++i) if ($i == "kolo_us") column = i; next }
             column { print $column }' | tail -n 1
}
# shellcheck disable=SC2317
run_horovod() { # [mpirun options ...]
  mpirun -np "$ranks" "$@" "$python" "$here/horovod_gradients.py" "$file" | tail -n 1
}
# shellcheck disable=SC2317
run_horovod_tuned() { run_horovod "${tuned[@]}"; }
# shellcheck disable=SC2317
run_ddp() { mpirun -np "$ranks" "$python" "$here/ddp_gradients.py" "$file" | tail -n 1; }

# shellcheck disable=SC2317
run_python() {
  local build
  build=$(dirname "$kolo_perf")
  PYTHONPATH=$build/../python "$build/kolorun" -np "$ranks" "$python" "$here/python_gradients.py" "$file" |
    tail -n 1
}

# measure NAME: sets `took` to the microseconds of run_NAME; on failure reports the reason.
measure() {
  local status=0
  took=$("run_$1" 2>"$errors") || status=$?
  if ((status == 0)) && [[ $took =~ ^-?[0-9]+(\.[0-9]+)?$ ]]; then return; fi
  echo "peers.sh: $1 failed (exit status $status, printed '$took'):" >&2
  tail -n 20 "$errors" >&2
  return 1
}

declare -A ratios
failed=0
for ((round = 1; round <= rounds; ++round)); do
  measure kolo
  kolo=$took
  line="round $round: Kolo $kolo us"
  for peer in "${peers[@]}"; do
    if ! measure "$peer"; then
      line+=", $peer failed"
      failed=1
      continue
    fi
    ratio=$(awk "BEGIN { printf \"%.2f\", $took / $kolo }")
    ratios[$peer]+="$ratio"$'\n'
    line+=", $peer $took us ($ratio)"
  done
  echo "$line"
done
for peer in "${peers[@]}"; do
  [[ -n ${ratios[$peer]:-} ]] || continue
  echo "$set on $ranks ranks, median ratio of $peer: $(printf '%s' "${ratios[$peer]}" | median)"
done
exit "$failed"
