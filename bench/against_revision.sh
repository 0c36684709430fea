#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC1091,SC2034,SC2154
# Compares training steps of two builds of Kolo on 2 ranks, in alternating runs. The speed of a
# shared machine changes from run to run, so each run alternates steps with Kolo and steps without
# communication, and measures how much longer the former take. Prints the rows of
# against_revision.csv: for each build the additional time in percent, as the median of its runs,
# and then the additional time of the second build relative to the first: median, minimum and
# maximum over the rounds. Needs root for the links.
# Usage: against_revision.sh OLD NEW [ROUNDS [WORKLOADS [MBITS]]]
#   OLD, NEW   directories of bench-cifar10-step and synthetic_benchmark
#   ROUNDS     pairs of runs (15)
#   WORKLOADS  "cifar10 resnet50"
#   MBITS      links between two hosts, in megabits per second; 0: one host ("0 1000")
# link_emulator must be in NEW. A build of another revision:
#   git worktree add ../old REVISION && cd ../old && cmake --preset ci &&
#   cmake --build build/ci --target bench-cifar10-step synthetic_benchmark
set -euo pipefail
old=$(cd "$1" && pwd) new=$(cd "$2" && pwd)
rounds=${3:-15} workloads=${4:-cifar10 resnet50} mbits=${5:-0 1000}
programs=$new ranks=1 delay=100 mtu=9000
source "$(dirname "$0")/../tests/hosts/emulated_hosts.sh"

# The time of a step with Kolo divided by that of a step without communication. ResNet-50 has its
# usual gradients, but small images, so that computing takes little time.
run_cifar10() { # PROGRAMS STARTER...
  "${@:2}" "$1/bench-cifar10-step" --batch-size 32 --steps 1 --rounds 30 |
    sed -nE 's/^with Kolo +[0-9.]+ ms a step +([-+0-9.]+) %.*/\1/p' | awk '{ print 1 + $1 / 100 }'
}
run_resnet50() {
  "${@:2}" "$1/synthetic_benchmark" --model resnet50 --image-size 64 --batch-size 8 --threads 1 \
    --num-warmup-batches 2 --num-batches-per-iter 2 --num-iters 5 --scaling-efficiency --json |
    python3 -c 'import json, sys; print(1 / json.load(sys.stdin)["against_side_by_side"])'
}

print_row() {  # WORKLOAD PLACE; reads lines "OLD NEW" from standard input
  python3 -c '
import statistics, sys
pairs = [tuple(map(float, line.split())) for line in sys.stdin]
ratios = [100 * (new / old - 1) for old, new in pairs]
longer = (100 * (statistics.median(column) - 1) for column in zip(*pairs))
print(sys.argv[1], sys.argv[2], len(pairs), *(f"{each:+.1f}" for each in longer),
      f"{statistics.median(ratios):+.1f}", f"{min(ratios):+.1f}", f"{max(ratios):+.1f}", sep=",")' "$@"
}

make_hosts
for mbit in $mbits; do
  place="one host" start=(mpirun -np 2)
  if ((mbit > 0)); then
    place="$mbit Mbit/s" start=(on_hosts)
    connect "$mbit" 0
  fi
  for workload in $workloads; do
    for ((round = 1; round <= rounds; ++round)); do
      # The order alternates, so that a drift of the machine's speed favors neither build.
      if ((round % 2 == 1)); then
        before=$("run_$workload" "$old" "${start[@]}")
        after=$("run_$workload" "$new" "${start[@]}")
      else
        after=$("run_$workload" "$new" "${start[@]}")
        before=$("run_$workload" "$old" "${start[@]}")
      fi
      echo "$before $after"
      echo "$workload, $place, round $round: $before $after" >&2
    done | print_row "$workload" "$place"
  done
  disconnect
done
