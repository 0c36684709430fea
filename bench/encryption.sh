#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC1091,SC2034,SC2154
# Allreduces, and steps of a training, of two emulated hosts with one rank each, over sockets
# without and with encryption. Prints CSV: medians of alternating rounds. Needs root.
# Usage: encryption.sh PROGRAMS [ROUNDS]
#   PROGRAMS  directory of kolo-perf, bench-cifar10-step and link_emulator
#   ROUNDS    number of rounds (5)
# Environment:
#   KOLO_BENCH_MBITS  links, megabits per second in each direction; 0: no limit ("0 1000")
set -euo pipefail
programs=$(cd "$1" && pwd)
rounds=${2:-5}
ranks=1 delay=100 mtu=9000
source "$(dirname "$0")/../tests/hosts/emulated_hosts.sh"

allreduces() { # MBIT NETWORK
  on_hosts -x KOLO_NETWORK="$2" "$programs/kolo-perf" --operation allreduce --sizes 1K,64K,1M,64M \
    --warmup 2 --iterations 11 --csv |
    awk -F , -v mbit="$1" -v network="$2" '
      NR == 1 { for (i = 1; i <= NF; ++i) column[$i] = i; next }
      { print mbit, "allreduce", $column["bytes"], network, $column["kolo_us"] / 1e3 }'
}

steps() { # MBIT NETWORK
  on_hosts -x KOLO_NETWORK="$2" "$programs/bench-cifar10-step" --batch-size 32 --steps 1 --rounds 15 |
    sed -nE "s/^with Kolo +([0-9.]+) ms a step.*/$1 step 0 $2 \1/p"
}

echo "mbit,what,bytes,plain_ms,encrypted_ms,ratio"
make_hosts
for mbit in ${KOLO_BENCH_MBITS:-0 1000}; do
  if [[ $mbit == 0 ]]; then connect_directly; else connect "$mbit" 0; fi
  for ((round = 0; round < rounds; ++round)); do
    for network in sockets encrypted; do
      allreduces "$mbit" "$network"
      steps "$mbit" "$network"
    done
  done
  disconnect
done | python3 -c '
import statistics, sys
times = {}
for line in sys.stdin:
    mbit, what, size, network, time = line.split()
    times.setdefault((mbit, what, size), {}).setdefault(network, []).append(float(time))
for key, own in times.items():
    plain, encrypted = (statistics.median(own[network]) for network in ("sockets", "encrypted"))
    print(*key, f"{plain:.3g}", f"{encrypted:.3g}", f"{encrypted / plain:.2f}", sep=",")'
