#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC1091,SC2016,SC2154
# What kolorun says last when a job fails: the process that has failed first, and why.
#
# Usage: kolorun_causes_test.sh KOLORUN RANK_PROGRAM DIRECTORY SESSION_PROGRAM DEPARTURE_PROGRAM
here=$(cd "$(dirname "$0")" && pwd)
source "$here/jobs.sh"
departure_program=$5
export FAKE_SSH_DIR=$work KOLO_RSH="sh $here/fake_ssh.sh" KOLO_FLIGHT_RECORDER_DIR=off
near_and_far=(-H near:2,far:2 --network-interface lo)

# last NAME STATUS PATTERN COMMAND...: the last line of the output matches.
last() {
  expect "$1" "$2" "" "${@:4}"
  tail -n 1 <<<"$output" | grep -qE -e "^kolorun: the job has failed: $3\$" ||
    fail "$(printf '%s: the last line does not match %s:\n%s' "$1" "$3" "$output")"
}
# says NAME LINE: the last lines of the process are shown.
says() {
  sed -n '/^kolorun: the last lines that the process which has failed first wrote:$/,$p' <<<"$output" |
    grep -qxF -e "    $2" || fail "$(printf '%s: the last lines lack %s:\n%s' "$1" "$2" "$output")"
}
one='rank 1 \(process [0-9]+ on [^)]+\)'

last "an exception" 1 "$one has failed: an exception ended its session's scope; it has ended with status 1" \
  "$kolorun" -np 3 --tag-output "$departure_program" caught 1
says "an exception" "caught: thrown on purpose"
last "an exception that nobody catches" 134 \
  "$one has failed: an uncaught exception: thrown on purpose; signal 6 has ended it" \
  "$kolorun" -np 3 "$departure_program" uncaught 1
last "an exception in a callback" 134 "$one has failed: .*signal 6 has ended it" \
  "$kolorun" -np 3 "$departure_program" terminates 1
last "exit(3)" 3 "$one has failed: its process exits with status 3; it has ended with status 3" \
  "$kolorun" "${near_and_far[@]}" "$departure_program" exit 1
last "a kill" 137 "$one is lost: .*signal 9 has ended it" "$kolorun" -np 3 "$departure_program" killed 1
grep -qxF 'kolorun: the other ranks waited in allreduce "gradient"' <<<"$output" ||
  fail "a kill: nothing says what the others waited for: $output"
! grep -q "kolo-diagnose" <<<"$output" || fail "a kill: there are no records: $output"
mkdir records
last "with records" 137 "$one is lost: .*signal 9 has ended it" \
  "$kolorun" -np 3 -x KOLO_FLIGHT_RECORDER_DIR=records "$departure_program" killed 1
pattern=$(sed -n 's/^kolorun: what the ranks were waiting for: kolo-diagnose //p' <<<"$output")
compgen -G "$pattern" >/dev/null || fail "with records: '$pattern' names no file: $output"
last "far away" 3 'rank 3 \(process [0-9]+ on far\) has failed: its process exits with status 3.*' \
  "$kolorun" "${near_and_far[@]}" "$departure_program" exit 3

# Before the first session, and in programs without one.
before='rank 1 \(number [0-9]+ on [^)]+\) is lost:'
last "no data" 3 "$before it has ended with status 3" "$kolorun" -np 2 --output-dir files sh -c \
  'if [ $RANK = 1 ]; then for i in $(seq 30); do echo "line $i" >&2; done; echo "no data" >&2; exit 3; fi; sleep 5'
says "no data" "no data"
says "no data" "line 12"
has() { # NAME FILE MEMBER...
  local name=$1 file=$2 member
  shift 2
  for member; do
    grep -qF "$member" "$file" || fail "$name: $file lacks $member: $(cat "$file")"
  done
}
has "no data" files/rank.1.error.json '"status": 3' '"signal": 0' '"host": "' '"no data"'
has "no data" files/error.json '"status": 3' '"restarts": 0' 'it has ended with status 3' '"no data"'
expect "no failure" 0 "" "$kolorun" -np 2 --output-dir files true
[[ ! -e files/error.json ]] || fail "no failure: error.json is that of the job before"
! grep -qxF '    line 11' <<<"$output" || fail "no data: more than 20 lines: $output"
last "a segmentation fault" 139 "$before signal 11 has ended it" "$kolorun" "${near_and_far[@]}" sh -c \
  'if [ $RANK = 1 ]; then echo "about to fail" >&2; kill -SEGV $$; fi; sleep 5'
says "a segmentation fault" "about to fail"
last "a program that is missing" 127 \
  "rank [01] \\(number [0-9]+ on (near|far)\\) is lost: it has ended with status 127: './absent' cannot be run: No such file.*" \
  "$kolorun" -H near:1,far:1 --network-interface lo ./absent
last "no session on one host" 1 \
  "1 of 2 processes have ended without a session, and the others wait for them: rank 1 \\(number [0-9]+ on far\\)" \
  "$kolorun" -H near:1,far:1 --network-interface lo sh -c '[ $RANK = 1 ] || exec "$0" 5' "$rank_program"
last "no session in time" 1 \
  'only 1 of 6 processes joined within 2 s; missing: rank 1 \(number [0-9]+ on far\), rank 2 .*, rank 4 [^,]* and 1 more' \
  "$kolorun" -H near:1,far:5 --network-interface lo --start-timeout 2 sh -c '[ $RANK != 0 ] || exec "$0" 5; exec sleep 600' \
  "$rank_program"
last "a library that is missing" 127 "$before it has ended with status 127" \
  "$kolorun" -np 2 --tag-output sh -c '[ $RANK = 1 ] && exec ./absent; sleep 5'
last "a full disk" 1 "$before it has ended with status 1" "$kolorun" "${near_and_far[@]}" sh -c \
  'if [ $RANK = 1 ]; then cat /etc/passwd >/dev/full || exit 1; fi; sleep 5'
says "a full disk" "cat: write error: No space left on device"
last "a limit of the shell" 152 "$before signal 24 has ended it.*RLIMIT_CPU.*" "$kolorun" -np 2 sh -c \
  'if [ $RANK = 1 ]; then ulimit -St 1; while :; do :; done; fi; sleep 30'

# The host of rank 0, and a connection by ssh.
starts host.log "$kolorun" "${near_and_far[@]}" --lease 2 "$rank_program" 1000000000
job=$!
meets "the host of rank 0" host.log '^generation 1: rank 0 of 4'
pkill -KILL -P "$job" -o
ends "the host of rank 0" "$job" 1 host.log
tail -n 1 host.log | grep -qE '^kolorun: the job has failed: (host near: |the agent on near is lost: )' ||
  fail "the host of rank 0: $(cat host.log)"

# A process that the kernel kills for lack of memory, where this user can make a cgroup.
own=$(sed -n 's/^[0-9]*:memory://p' /proc/self/cgroup)
group=/sys/fs/cgroup/memory$own/kolo_causes_$$
limit=memory.limit_in_bytes
[[ -n $own ]] || { group=/sys/fs/cgroup$(sed -n 's/^0:://p' /proc/self/cgroup)/kolo_causes_$$ && limit=memory.max; }
in_group=(sh -c 'echo $$ >"$0/cgroup.procs"; exec "$@"' "$group")
takes_much=(sh -c 'exec tail -c 900000000 /dev/zero >/dev/null')
if mkdir "$group" 2>/dev/null && echo $((64 << 20)) 2>/dev/null >"$group/$limit" &&
  ! "${in_group[@]}" "${takes_much[@]}" 2>/dev/null; then
  last "no memory" 137 'rank 0 .* is lost: .*signal 9 has ended it: killed for lack of memory.*0\.1 GiB.*' \
    "${in_group[@]}" "$kolorun" -np 1 "${takes_much[@]}"
  rmdir "$group" || true
else
  rmdir "$group" 2>/dev/null || true
  echo "no cgroup limits memory here: nothing was killed for lack of it"
fi
conclude kolorun_causes
