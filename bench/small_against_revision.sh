#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Compares the cost of small tensors in two builds of Kolo, in alternating runs on one host: an
# allreduce of 4 bytes whose ranks sleep while they wait, and 1000 tensors of 1 KiB. Prints the rows
# of small_against_revision.csv: the median of each build's runs in microseconds, and of the ratio
# of the second build's time to the first's in a round, with its minimum and maximum.
# Usage: small_against_revision.sh OLD NEW [ROUNDS]
#   OLD, NEW  the two kolo-perf programs
#   ROUNDS    number of rounds (9)
set -euo pipefail
old=$1 new=$2 rounds=${3:-9}

column() {  # NAME; prints the maximum of a column of kolo-perf's CSV
  awk -F , -v name="$1" '
    NR == 1 { for (i = 1; i <= NF; ++i) if ($i == name) column = i; next }
    $column > most { most = $column } END { print most }'
}
from_sleep() { mpirun -np "$2" "$1" --mode from-sleep --sizes 4 --iterations 20 --csv | column kolo_us; }
tensors() { mpirun -np "$2" "$1" --gradients 1000x1KB --memory private --iterations 20 --csv | column kolo_us; }

compare() { # WHAT FUNCTION RANKS
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
      *(f"{value:.2f}" for value in (statistics.median(ratios), min(ratios), max(ratios))), sep=",")' "$1" "$3"
}

echo "what,ranks,rounds,old_us,new_us,ratio,min,max"
compare "4 B from sleep" from_sleep 2
for np in 2 4; do compare "1000 tensors of 1 KiB" tensors "$np"; done
