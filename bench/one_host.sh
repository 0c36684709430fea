#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Measures Kolo and MPI on one host, on 2 and 4 ranks, for docs/performance.md. Takes minutes. The
# processors of a virtual machine may move between cores of its host, so the script also records the
# time of a message between them, by bench-cores, before and after each measurement.
# Usage: one_host.sh KOLO_PERF >RUN; one_host_table.py RUN... makes docs/measurements/one_host.csv.
set -euo pipefail
kolo_perf=$1
# Open MPI's tuning for large messages.
tuned=(--mca coll_tuned_use_dynamic_rules 1 --mca coll_tuned_allreduce_algorithm 5
  --mca coll_tuned_allreduce_algorithm_segmentsize 524288)

cores() { echo "# message $("$(dirname "$kolo_perf")/bench-cores" | tail -n 1 | cut -d , -f 1)"; }
run() {
  cores
  mpirun "$@" --csv 2>/dev/null
  cores
}

for ranks in 2 4; do
  both=(--iterations 20 --memory private,shared)
  echo "# default"
  run -np "$ranks" "$kolo_perf" --sizes 4,64K,256K,1M,16M,100M "${both[@]}"
  run -np "$ranks" "$kolo_perf" --gradients resnet50,1000x1KB "${both[@]}"
  echo "# tuned"
  run -np "$ranks" "${tuned[@]}" "$kolo_perf" --gradients resnet50 "${both[@]}"
  run -np "$ranks" "${tuned[@]}" "$kolo_perf" --sizes 100M "${both[@]}"
done
echo "# default"
run -np 2 "$kolo_perf" --mode from-sleep --sizes 4 --iterations 20
for ranks in 2 4; do run -np "$ranks" "$kolo_perf" --mode idle --seconds 5; done
