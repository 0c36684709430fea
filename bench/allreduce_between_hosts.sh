#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC1091,SC2034,SC2154
# Allreduces of 100 MB among emulated hosts, compared with the time in which MPI sends as many bytes
# from one host to the next. Prints CSV: medians of alternating rounds, in milliseconds. Needs root.
# Usage: allreduce_between_hosts.sh PROGRAMS [ROUNDS [CASES]]
#   PROGRAMS  directory of link_program and link_emulator
#   ROUNDS    number of rounds (5)
#   CASES     HOSTS,RANKS,MBIT,LOSS,NETWORK[,DELAY]: ranks on each host, megabits per second, percent lost,
#             KOLO_NETWORK, microseconds each way (1000)
set -euo pipefail
programs=$(cd "$1" && pwd)
rounds=${2:-5}
cases=${3:-2,1,1000,0,mpi 2,1,1000,0,sockets 2,2,1000,0,mpi 2,2,1000,0,sockets 2,2,1000,1,mpi 2,2,500,0,mpi
  3,1,1000,0,sockets 3,2,1000,0,mpi 3,2,1000,0,sockets
  2,1,1000,0,mpi,10000 2,1,1000,0,sockets,10000 2,2,1000,0,mpi,10000 2,2,1000,0,sockets,10000}

measure() ( # HOSTS RANKS MBIT LOSS NETWORK [DELAY]
  host_count=$1 ranks=$2 delay=${6:-1000} mtu=9000
  source "$(dirname "$0")/../tests/hosts/emulated_hosts.sh"
  make_hosts
  connect "$3" "$4"
  on_hosts --timeout 300 -x KOLO_NETWORK="$5" "$programs/link_program" --megabytes 100 --rounds "$rounds" |
    awk -v setup="$1,$2,$3,$4,$5,$delay" '
      / ms / { for (i = 1; i <= NF; ++i) if ($i == "ms") times = times "," $(i - 1) }
      END { split(times, t, ","); printf "%s%s,%.2f\n", setup, times, t[4] / t[2] }'
)

echo "hosts,ranks,mbit,lost,network,delay_us,one_way_ms,both_ways_ms,allreduce_ms,relative"
for one in $cases; do
  IFS=, read -ra fields <<<"$one"
  measure "${fields[@]}"
done
