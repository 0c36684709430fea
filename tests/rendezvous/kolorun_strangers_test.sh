#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC1091,SC2016,SC2046,SC2054,SC2086,SC2154
# A stranger without the secret of a job cannot affect the job, except for a line in the log.
#
# Usage: kolorun_strangers_test.sh KOLORUN RANK_PROGRAM DIRECTORY
here=$(cd "$(dirname "$0")" && pwd)
source "$here/jobs.sh"
for name in secret wrong; do (umask 077 && head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' >$name); done
port=$((24100 + $$ % 3000))
at=127.0.0.1:$port
two=(-np 2 --min-np 1 --max-np 3 --rendezvous "$at" --slots 2)

# knock COMMAND: its output goes to the server, which must close the connection.
knock() {
  bash -c "exec 3<>/dev/tcp/127.0.0.1/$port; { $1; } >&3; timeout 20 cat <&3 >answer" 2>/dev/null
  (($? != 124))
}

# Before the first session, too.
"$kolorun" "${two[@]}" --secret-file secret sh -c 'until [ -e go ]; do sleep 0.1; done; exec "$@"' sh \
  "$rank_program" 1000000000 >log 2>&1 </dev/null &
job=$!
until (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do sleep 0.05; done
for round in 1 2; do
  knock 'head -c 20000 /dev/urandom' || fail "garbage: it was not closed"
  knock 'printf "GET / HTTP/1.1\r\nHost: here\r\n\r\n"' || fail "HTTP: it was not closed"
  [[ ! -s answer ]] || fail "HTTP: an answer"
  # The mark and the length of a message, which does not come.
  knock 'printf "KoR2\x40\x00\x00\x00"' || fail "half a message: it was not closed"
  [[ ! -s answer ]] || grep -q 'it does not identify itself' answer || fail "half a message: an answer"
  knock 'printf "KoR2\x00\x00\x00\x40"' || fail "a message of 1 GiB: it was not closed"
  expect "an agent of another job" 1 'the server at .* does not know this job.s secret' \
    "$kolorun" "${two[@]}" --secret-file wrong true
  expect "a process of another job" 1 'the server at .* does not know this job.s secret' env "KOLO_RENDEZVOUS=$at" \
    "KOLO_RENDEZVOUS_SECRET=$(cat wrong)" KOLO_RENDEZVOUS_PROCESS=1 "$rank_program" 1
  for ((i = 0; i < 300; ++i)); do (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; done
  touch go
  meets "round $round" log '^generation 1: rank 1 of 2, commit 0'
done
# It knows the secret, but not which process it is.
expect "a process that no agent has started" 1 'it is not a process of this job' env "KOLO_RENDEZVOUS=$at" \
  "KOLO_RENDEZVOUS_SECRET=$(cat secret)" KOLO_RENDEZVOUS_PROCESS=1 "$rank_program" 1
(($(grep -c refused log) <= 20)) || fail "the log has $(grep -c refused log) lines"
for line in 'it sent an invalid message' 'it does not identify itself' 'the secret is wrong' \
  'its connection is closed.*; others are only counted'; do
  grep -qE "^kolorun: a connection from 127.0.0.1:[0-9]+ is refused: $line" log || fail "the log has no line: $line"
done
grep -qE 'generation 2|PeerLeft' log && fail "the job has changed: $(grep -vc refused log)"
grep -qF "$(head -c 32 secret)" log && fail "the log has the secret"
kill -TERM "$job"
ends "strangers" "$job" 143 log
conclude "strangers"
