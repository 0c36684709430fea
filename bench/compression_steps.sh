#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC1091,SC2034,SC2154
# A training step with each compression of gradients, on 2 ranks: on one host, and on two hosts
# emulated by network namespaces that a link joins. Prints the rows of compression_steps.csv. Needs
# root for the links.
# Usage: compression_steps.sh PROGRAMS [ROUNDS [STEPS]]
#   PROGRAMS  directory of bench-compression and link_emulator
#   ROUNDS    blocks of steps with each compression, alternating (15)
#   STEPS     steps per block (5)
# Environment:
#   KOLO_BENCH_MBITS  links, megabits per second in each direction ("1000 100")
set -euo pipefail
programs=$(cd "$1" && pwd)
rounds=${2:-15} steps=${3:-5}
mbits=${KOLO_BENCH_MBITS:-1000 100}
ranks=1 delay=100 mtu=9000
source "$(dirname "$0")/../tests/hosts/emulated_hosts.sh"

measure() { # PLACE COMMAND...
  local place=$1
  shift
  "$@" "$programs/bench-compression" --rounds "$rounds" --steps "$steps" "${interface[@]}" |
    sed "s|^|$place,|"
}

interface=()
measure "one host" mpirun -np 2
interface=(--interface wire)
make_hosts
for mbit in $mbits; do
  connect "$mbit" 0
  measure "$mbit Mbit/s" on_hosts
  disconnect
done
