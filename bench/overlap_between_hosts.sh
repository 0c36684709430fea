#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC1091,SC2034,SC2154
# The part of a reduction between two emulated hosts that the backward pass hides. Measures a
# training step of the CIFAR-10 network, with one rank on each host: without communication, with
# Kolo, and with Kolo but only after backward. Prints the rows of overlap_between_hosts.csv: medians
# in milliseconds, and the median of the additional time without overlap, in percent. Needs root for
# the hosts.
# Usage: overlap_between_hosts.sh PROGRAMS [RUNS [ROUNDS [STEPS]]]
#   PROGRAMS  directory of bench-cifar10-step and link_emulator
#   RUNS      runs per link (3)
#   ROUNDS    rounds per run, in which all kinds of steps alternate (15)
#   STEPS     steps of each kind per round (5)
# Environment:
#   KOLO_BENCH_MBITS  links, megabits per second in each direction ("1000 500")
set -euo pipefail
programs=$(cd "$1" && pwd)
runs=${2:-3} rounds=${3:-15} steps=${4:-5}
ranks=1 delay=100 mtu=9000
source "$(dirname "$0")/../tests/hosts/emulated_hosts.sh"

echo "mbit,run,without_ms,kolo_ms,after_ms,after_longer"
make_hosts
for mbit in ${KOLO_BENCH_MBITS:-1000 500}; do
  connect "$mbit" 0
  for ((run = 1; run <= runs; ++run)); do
    on_hosts "$programs/bench-cifar10-step" --batch-size 32 --steps "$steps" --rounds "$rounds" |
      sed -nE 's/^(without communication|with Kolo, after backward|with Kolo) +([0-9.]+) ms a step +([-+0-9.]+) %.*/\1:\2:\3/p' |
      awk -F : -v mbit="$mbit" -v run="$run" '
        { ms[$1] = $2; longer[$1] = $3 }
        END {
          after = "with Kolo, after backward"
          printf "%s,%s,%s,%s,%s,%s\n", mbit, run, ms["without communication"], ms["with Kolo"], ms[after], longer[after]
        }'
  done
  disconnect
done
