# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154
# Source this file in scripts that compare two builds. Needs `old` and `new`, which a measuring
# function gets as its first argument, and the number of `rounds`.

# column NAME: the maximum of a column of kolo-perf's CSV.
column() {
  awk -F , -v name="$1" '
    NR == 1 { for (i = 1; i <= NF; ++i) if ($i == name) column = i; next }
    $column > most { most = $column } END { print most }'
}

# compare FUNCTION ARGUMENT WORD...: measures both builds in turns with FUNCTION, which prints
# microseconds. Prints a row of CSV: the words, the number of rounds, the median of each build, and
# the median of the ratios of a round with their minimum and maximum.
compare() {
  local round before after
  for ((round = 1; round <= rounds; ++round)); do
    # The order alternates, so that a drift of the machine's speed favors neither build.
    if ((round % 2 == 1)); then
      before=$("$1" "$old" "$2") after=$("$1" "$new" "$2")
    else
      after=$("$1" "$new" "$2") before=$("$1" "$old" "$2")
    fi
    echo "$before $after"
  done | python3 -c '
import statistics, sys
pairs = [tuple(map(float, line.split())) for line in sys.stdin]
ratios = [new / old for old, new in pairs]
print(*sys.argv[1:], len(pairs), *(f"{statistics.median(column):.3g}" for column in zip(*pairs)),
      *(f"{value:.2f}" for value in (statistics.median(ratios), min(ratios), max(ratios))), sep=",")' "${@:3}"
}
