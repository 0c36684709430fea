# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034
# Source this file in the tests of kolorun.
#
# Sets kolorun, rank_program and work from the arguments KOLORUN RANK_PROGRAM DIRECTORY, and enters an
# empty directory.
set -uo pipefail
kolorun=$1
rank_program=$2
work=$3
failed=0
rm -rf "$work"
mkdir -p "$work"
cd "$work" || exit 1

fail() {
  printf 'FAILED %s\n' "$*"
  failed=1
}

# expect NAME STATUS PATTERN COMMAND...: each line of PATTERN is a regular expression that a line of
# the output must match. The output is in the variable `output` then.
expect() {
  local name=$1 status=$2 patterns=$3 got=0 pattern
  shift 3
  output=$(timeout 100 "$@" 2>&1 </dev/null) || got=$?
  ((got == status)) || fail "$(printf '%s: status %d instead of %d\n%s' "$name" "$got" "$status" "$output")"
  while IFS= read -r pattern; do
    grep -qE -e "$pattern" <<<"$output" ||
      fail "$(printf '%s: no line matches %s:\n%s' "$name" "$pattern" "$output")"
  done <<<"$patterns"
}

# starts LOG COMMAND...: runs the command in the background; its number is in $! then. The log is
# emptied at once, and not by the new process, so that no line of an earlier job is read from it.
starts() {
  : >"$1"
  "${@:2}" >>"$1" 2>&1 </dev/null &
}

# meets NAME FILE PATTERN [TIMES]: waits for a line, or several.
meets() {
  local i
  for ((i = 0; i < 600; ++i)); do
    (($(grep -cE -e "$3" "$2" 2>/dev/null) >= ${4:-1})) && return
    sleep 0.1
  done
  fail "$(printf '%s: no line matches %s:\n%s' "$1" "$3" "$(cat "$2")")"
  return 1
}

# ends NAME PID STATUS FILE
ends() {
  local got=0
  wait "$2" || got=$?
  ((got == $3)) || fail "$(printf '%s: status %d instead of %d\n%s' "$1" "$got" "$3" "$(cat "$4")")"
}

# Waits until no process has one of these numbers.
gone() {
  local i pid
  for pid in "${@:2}"; do
    for ((i = 0; i < 100; ++i)); do
      kill -0 "$pid" 2>/dev/null || continue 2
      sleep 0.1
    done
    fail "$1: process $pid remains"
  done
}

conclude() {
  ((failed == 0)) && echo "$1: all as expected"
  exit "$failed"
}
