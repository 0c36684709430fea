#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# kolo-diagnose top finds the job that kolorun runs, names its straggler, and ends with it.
#
# Usage: top.sh KOLORUN KOLO_DIAGNOSE PROGRAM DIRECTORY
set -uo pipefail
kolorun=$1 diagnose=$2 program=$3
export TMPDIR=$4
unset KOLO_STATUS_FILE
rm -rf "$TMPDIR" && mkdir -p "$TMPDIR" && cd "$TMPDIR" || exit 1

fail() {
  printf 'top.sh: %s\n%s\n' "$1" "$(cat ./*.txt)"
  [[ $job == "$$" ]] || kill "$job"
  exit 1
}

# A directory that anyone may write could be somebody else's.
directory=kolo-$(id -u)
mkdir "$directory" && chmod 0777 "$directory"
job=$$
"$kolorun" -np 1 sh -c 'echo "[$KOLO_STATUS_FILE]"' >open.txt
[[ $(<open.txt) == "[]" ]] || fail "the status lies where anyone may write"
rmdir "$directory"
"$kolorun" -np 1 -x KOLO_STATUS_FILE=mine sh -c 'echo "[$KOLO_STATUS_FILE]"' >own.txt
[[ $(<own.txt) == "[mine]" ]] || fail "a file of the user is not used"

"$kolorun" -np 3 "$program" - 1 60 3 1000000 >job.txt 2>&1 </dev/null &
job=$!
# awaits PATTERN: until the status shows it.
awaits() {
  local i
  for ((i = 0; i < 600; ++i)); do
    "$diagnose" top --once >status.txt 2>&1
    grep -qE -e "$1" status.txt && return
    sleep 0.1
  done
  fail "the status never shows $1"
}
awaits '^rank 1 is late by [0-9.]+ ms per step of [0-9.]+ ms, since step [0-9]+: .* before "layer3.weight"$'
awaits '^ +2 +[^ ]+ +[0-9]+ +[0-9.]+ +[0-9.]+ +[0-9.]+ +[0-9.]+$'
"$diagnose" top --once --json "$job" | grep -q '"straggler":{"rank":1,' || fail "no JSON"

# A stopped rank: the others wait for it.
mapfile -t ranks < <(pgrep -P "$job")
kill -STOP "${ranks[1]}"
awaits '^ranks 0, 2 wait for rank 1: allreduce "layer[0-9].weight" for [0-9]+ s'
kill -CONT "${ranks[1]}"

"$diagnose" top "$job" >top.txt 2>&1 &
top=$!
kill -9 "${ranks[0]}"  # the others end, and nobody else removes the status
wait "$job"
wait "$top" || fail "top has failed"
[[ $(tail -1 top.txt) == "the job has ended" ]] || fail "top does not see the end"
[[ -z $(ls "$directory") ]] || fail "a status is left"
"$diagnose" top >none.txt 2>&1
(($? == 2)) || fail "a job that is over is found"
grep -q 'no kolorun of this user' none.txt || fail "the refusal says something else"
