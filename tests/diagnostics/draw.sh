#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# kolo-diagnose draw names the straggler of a job that has written timelines.
#
# Usage: draw.sh KOLORUN KOLO_DIAGNOSE PROGRAM DIRECTORY
set -uo pipefail
kolorun=$1 diagnose=$2 program=$3 directory=$4
rm -rf "$directory" && mkdir -p "$directory" && cd "$directory" || exit 1
fail() {
  printf 'draw.sh: %s\n%s\n' "$1" "$(cat ./*.txt)"
  exit 1
}
KOLO_STATUS_FILE=status KOLO_TIMELINE='t-%r.json' "$kolorun" -np 3 "$program" - 1 60 3 12 >job.txt 2>&1 </dev/null ||
  fail "the job has failed"
"$diagnose" draw t-*.json >picture.txt 2>&1 || fail "no picture"
grep -qE '^kolo-run.svg: steps [0-9]+ to [0-9]+ of [0-9]+, 3 ranks; rank 1 is late by [0-9.]+ ms per step of [0-9.]+ ms$' \
  picture.txt || fail "another verdict"
[[ $(head -1 kolo-run.svg) == "<svg "* && $(tail -1 kolo-run.svg) == "</svg>" ]] || fail "no SVG"
grep -qE '>step 5: others wait for rank 1 [0-9.]+ ms' kolo-run.svg || fail "no bar of the straggler"
"$diagnose" draw --steps 5 -o one.svg t-*.json >one.txt || fail "no picture of one step"
grep -q '^one.svg: steps 5 to 5 of ' one.txt || fail "other steps"
"$diagnose" draw --steps 5:4 t-*.json >wrong.txt 2>&1
(($? == 2)) || fail "wrong steps"
cp t-0.json copy.json && ln -s t-0.json link.json
for output in t-0.json ./t-0.json link.json; do
  "$diagnose" draw -o "$output" t-*.json >overwritten.txt 2>&1
  (($? == 2)) || fail "a timeline is overwritten as $output"
  grep -q 't-0.json: is a file to read, too' overwritten.txt || fail "no word of the overwritten file"
done
cmp t-0.json copy.json || fail "a timeline is overwritten"
"$diagnose" draw t-0.json job.txt >damaged.txt 2>&1
(($? == 2)) || fail "a file that is no timeline"
grep -q '^kolo-run.svg: ' damaged.txt || fail "the other file is not drawn"
