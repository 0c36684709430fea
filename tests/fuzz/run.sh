#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs the fuzz targets in turn, from their seeds, from the inputs in tests/fuzz/corpus and from
# inputs that earlier runs have added. Fails if a target finds a bug, or if its decoder never
# accepts an input, because most of the decoder was not reached then.
#
# Usage: tests/fuzz/run.sh PROGRAM SECONDS [TARGET...]     total seconds; default: all targets
#   KOLO_FUZZ_WORK     directory of seeds, growing corpora, logs and findings (default: next to the
#   program)
#   KOLO_FUZZ_TURN     seconds per turn (60)
#   KOLO_FUZZ_TIMEOUT  seconds after which an input counts as a finding (10)
set -euo pipefail
program=$(realpath "$1")
seconds=$2
shift 2
here=$(cd "$(dirname "$0")" && pwd)
work=${KOLO_FUZZ_WORK:-$(dirname "$program")/../fuzz}
turn=${KOLO_FUZZ_TURN:-60}
export ASAN_OPTIONS=${ASAN_OPTIONS:-detect_leaks=1:quarantine_size_mb=8:malloc_context_size=2}

# Written anew each time: seeds that no longer exist must not stay.
rm -rf "$work/seeds"
mkdir -p "$work/seeds"
KOLO_FUZZ_SEEDS=$work/seeds "$program"

targets=("$@")
if ((${#targets[@]} == 0)); then
  for folder in "$work"/seeds/*/; do targets+=("$(basename "$folder")"); done
fi
((seconds >= ${#targets[@]})) || seconds=${#targets[@]}
((turn * ${#targets[@]} <= seconds)) || turn=$((seconds / ${#targets[@]}))

declare -A executions accepted busy
for target in "${targets[@]}"; do executions[$target]=0 accepted[$target]=0 busy[$target]=0; done
findings=0

# One turn of a target. Every third turn tries inputs of up to 1 MiB from the beginning, longer than
# those from which a decoder learns more. libFuzzer writes to the first of the corpora that it is given.
take_turn() {
  local target=$1 log status=0 begin=$SECONDS most=0
  mkdir -p "$work/corpus/$target" "$work/findings"
  log=$work/$target.log
  local dictionary=$here/dictionaries/$target options=()
  if [[ $target == settings ]]; then  # names and words come from the table of settings
    { "$(dirname "$program")/kolo-settings" --dictionary && cat "$dictionary"; } >"$work/$target.dictionary"
    dictionary=$work/$target.dictionary
  fi
  [[ ! -e $dictionary ]] || options+=("-dict=$dictionary")
  if ((round % 3 == 0)); then
    most=1048576
    options+=("-max_len=$most" -len_control=0)
  fi
  local corpora=("$work/corpus/$target" "$work/seeds/$target")
  [[ ! -e $here/corpus/$target ]] || corpora+=("$here/corpus/$target")
  # Entropic schedules cost more than the decoders themselves do.
  KOLO_FUZZ_TARGET=$target KOLO_FUZZ_MAX_BYTES=$most "$program" -entropic=0 -max_total_time="$2" -print_final_stats=1 -timeout="${KOLO_FUZZ_TIMEOUT:-10}" \
    -rss_limit_mb=2048 -reload=0 -verbosity=1 -artifact_prefix="$work/findings/$target-" \
    "${options[@]}" "${corpora[@]}" >"$log" 2>&1 || status=$?
  local done_now accepted_now
  done_now=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
  accepted_now=$(sed -n 's/^fuzz: accepted \([0-9]*\) of .*/\1/p' "$log")
  executions[$target]=$((executions[$target] + ${done_now:-0}))
  accepted[$target]=$((accepted[$target] + ${accepted_now:-0}))
  busy[$target]=$((busy[$target] + SECONDS - begin))
  if ((status != 0)); then
    findings=$((findings + 1))
    cp "$log" "$work/findings/$target-$findings.log"
    printf 'FOUND by %s (status %d): see %s\n' "$target" "$status" "$work/findings/$target-$findings.log"
  fi
}

report() {
  local total=0 target
  printf '\n| target | executions | per second | accepted | share |\n| --- | ---: | ---: | ---: | ---: |\n'
  for target in "${targets[@]}"; do
    local n=${executions[$target]} a=${accepted[$target]} s=${busy[$target]}
    total=$((total + n))
    printf '| %s | %d | %d | %d | %d.%02d %% |\n' "$target" "$n" $((n / (s > 0 ? s : 1))) "$a" \
      $((n > 0 ? a * 100 / n : 0)) $((n > 0 ? a * 10000 / n % 100 : 0))
  done
  printf 'total executions: %d, findings: %d\n' "$total" "$findings"
}

SECONDS=0
for ((round = 1; SECONDS < seconds; ++round)); do
  for target in "${targets[@]}"; do
    left=$((seconds - SECONDS))
    if ((left <= 0)); then
      ((round == 1)) || break
      left=$turn  # every target has one turn at least
    fi
    take_turn "$target" $((left < turn ? left : turn))
  done
  ((round % 5 != 0)) || report
done
report
status=0
((findings == 0)) || status=1
for target in "${targets[@]}"; do
  if ((accepted[$target] == 0)); then
    printf '%s accepted nothing\n' "$target"
    status=1
  fi
done
exit $status
