#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC1091,SC2034,SC2154
# Reduces sets of gradients with different fusion thresholds, on 2 and 4 ranks of one host and on
# two emulated hosts. Prints CSV: the median time with the default threshold in milliseconds, and
# the medians of each threshold's time relative to the default in the same round. All thresholds run
# in each round. Without root it measures one host only.
# Usage: fusion_threshold.sh PROGRAMS [ROUNDS [THRESHOLDS [PLACES]]]
#   PROGRAMS    directory of kolo-perf and link_emulator
#   ROUNDS      number of rounds (5)
#   THRESHOLDS  in MiB; 64 is the default and must be among them ("1 4 16 64 256")
#   PLACES      one, for one host; two, for two hosts (both)
set -euo pipefail
programs=$(cd "$1" && pwd)
rounds=${2:-5}
thresholds=${3:-1 4 16 64 256}
places=${4:-one two}
ranks=1 delay=100 mtu=9000
warmup=5 iterations=15
source "$(dirname "$0")/../tests/hosts/emulated_hosts.sh"

# reduce SET MEMORY STARTER...: the median time of a reduction, in microseconds.
reduce() {
  "${@:3}" "$programs/kolo-perf" --gradients "$1" --memory "$2" --warmup "$warmup" \
    --iterations "$iterations" --csv |
    awk -F , 'NR == 1 { for (i = 1; i <= NF; ++i) column[$i] = i; next } { print $column["kolo_us"] }'
}

# sweep PLACE SET MEMORY STARTER...
sweep() {
  local place=$1 set=$2 memory=$3 round mib
  shift 3
  for ((round = 0; round < rounds; ++round)); do
    for mib in $thresholds; do
      printf '%s %s ' "$mib" "$(reduce "$set" "$memory" "$@" -x KOLO_FUSION_THRESHOLD=$((mib << 20)))"
    done
    echo
  done | python3 -c '
import statistics, sys
rounds = []
for line in sys.stdin:
    fields = line.split()
    rounds.append(dict(zip(map(int, fields[::2]), map(float, fields[1::2]))))
for mib in rounds[0]:
    ratio = statistics.median(times[mib] / times[64] for times in rounds)
    ms = statistics.median(times[64] for times in rounds) / 1e3
    print(*sys.argv[1:], mib, f"{ms:.2f}", f"{ratio:.3f}", sep=",")' "$place" "$set" "$memory"
}

echo "place,gradients,memory,mib,default_ms,ratio"
for np in 2 4; do
  [[ $places == *one* ]] || break
  for set in resnet50 1000x1KB; do
    for memory in private shared; do
      sweep "one host with $np ranks" "$set" "$memory" mpirun -np "$np"
    done
  done
done
if [[ $places == *two* ]] && ((EUID == 0)); then
  make_hosts
  connect 1000 0
  warmup=1 iterations=5
  for set in resnet50 1000x1KB; do
    sweep "two hosts at 1 Gbit/s" "$set" private on_hosts
  done
fi
