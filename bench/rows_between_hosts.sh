#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC1091,SC2034,SC2154
# Allgathers and reducescatters between two emulated hosts with two ranks each, by one or two builds
# of Kolo and by MPI. Prints the rows of rows_between_hosts.csv: medians of alternating rounds, in
# milliseconds. Needs root for the hosts.
# Usage: rows_between_hosts.sh PROGRAMS [BEFORE [ROUNDS]]
#   PROGRAMS  directory of kolo-perf and link_emulator
#   BEFORE    directory of another build's kolo-perf ("": none)
#   ROUNDS    number of rounds (5)
# Environment:
#   KOLO_BENCH_MBITS  links, megabits per second in each direction ("1000")
set -euo pipefail
programs=$(cd "$1" && pwd)
before=${2:-}
[[ -z $before ]] || before=$(cd "$before" && pwd)
rounds=${3:-5}
ranks=2 delay=100 mtu=9000
source "$(dirname "$0")/../tests/hosts/emulated_hosts.sh"

measure() { # BUILD DIRECTORY MBIT
  on_hosts "$2/kolo-perf" --operation allgather,reducescatter --sizes 64K,1M,16M --warmup 2 \
    --iterations 7 --csv |
    awk -F , -v build="$1" -v mbit="$3" '
      NR == 1 { for (i = 1; i <= NF; ++i) column[$i] = i; next }
      { print mbit, $column["operation"], $column["bytes"], build, $column["kolo_us"], $column["mpi_us"] }'
}

echo "mbit,operation,bytes,kolo_ms,mpi_ms,before_ms"
make_hosts
for mbit in ${KOLO_BENCH_MBITS:-1000}; do
  connect "$mbit" 0
  for ((round = 0; round < rounds; ++round)); do
    measure now "$programs" "$mbit"
    [[ -z $before ]] || measure before "$before" "$mbit"
  done
  disconnect
done | python3 -c '
import statistics, sys
times = {}
for line in sys.stdin:
    mbit, operation, size, build, kolo, mpi = line.split()
    own = times.setdefault((mbit, operation, size), {})
    own.setdefault(build, []).append(float(kolo))
    own.setdefault("mpi", []).append(float(mpi))
def middle(values):
    return f"{statistics.median(values) / 1e3:.3g}" if values else ""
for key, own in times.items():
    print(*key, middle(own["now"]), middle(own["mpi"]), middle(own.get("before")), sep=",")'
