#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Compares two builds of Kolo, in alternating runs on one machine: the time of a job that only starts
# and ends, and allreduces of two ranks that take each other for hosts, over the loopback interface.
# Prints the rows of connections_against_revision.csv: the median of each build's runs in
# microseconds, and of the ratio of the second build's time to the first's in a round, with its
# minimum and maximum.
#
# Usage: connections_against_revision.sh OLD NEW [ROUNDS]
#   OLD, NEW  the directories of the programs
#   KOLO_OLD_NETWORK  the network of the first build between hosts (sockets)
#   ROUNDS    number of rounds (7)
set -euo pipefail
old=$1 new=$2 rounds=${3:-7}
declare -A network=([$old]=${KOLO_OLD_NETWORK:-sockets} [$new]=sockets)
export KOLO_FLIGHT_RECORDER_DIR=off

start() { # PROGRAMS RANKS
  local begin=$EPOCHREALTIME
  "$1/kolorun" -np "$2" "$1/bench-start-up" kolo >/dev/null
  awk -v begin="$begin" -v end="$EPOCHREALTIME" 'BEGIN { printf "%.0f\n", 1e6 * (end - begin) }'
}

between() { # PROGRAMS SIZE
  KOLO_TEST_RANKS_PER_HOST=1 KOLO_NETWORK=${network[$1]} mpirun -np 2 "$1/kolo-perf" --sizes "$2" \
    --iterations 31 --csv | awk -F , '
    NR == 1 { for (i = 1; i <= NF; ++i) if ($i == "kolo_us") column = i; next }
    $column > most { most = $column } END { print most }'
}

compare() { # WHAT FUNCTION ARGUMENT
  local round
  for ((round = 1; round <= rounds; ++round)); do
    # The order alternates, so that a drift of the machine's speed favors neither build.
    if ((round % 2 == 1)); then
      before=$("$2" "$old" "$3") after=$("$2" "$new" "$3")
    else
      after=$("$2" "$new" "$3") before=$("$2" "$old" "$3")
    fi
    echo "$before $after"
  done | python3 -c '
import statistics, sys
pairs = [tuple(map(float, line.split())) for line in sys.stdin]
ratios = [new / old for old, new in pairs]
print(*sys.argv[1:], len(pairs), *(f"{statistics.median(column):.3g}" for column in zip(*pairs)),
      *(f"{value:.2f}" for value in (statistics.median(ratios), min(ratios), max(ratios))), sep=",")' "$1"
}

echo "what,rounds,old_us,new_us,ratio,min,max"
for ranks in 2 4 64; do compare "start of $ranks ranks on one host" start "$ranks"; done
for size in 8 64K 64M; do compare "allreduce of $size between hosts" between "$size"; done
