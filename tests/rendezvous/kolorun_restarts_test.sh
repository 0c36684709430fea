#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC1091,SC2016,SC2154
# Jobs of kolorun that start again after a failure, and jobs that a timeout ends.
#
# Usage: kolorun_restarts_test.sh KOLORUN RANK_PROGRAM DIRECTORY
here=$(cd "$(dirname "$0")" && pwd)
source "$here/jobs.sh"
export FAKE_SSH_DIR=$work KOLO_RSH="sh $here/fake_ssh.sh"
# Fails on rank 1 until the job has started again twice.
second='echo rank $RANK restart $KOLO_RESTARTS; [ $RANK = 0 ] || exit $((KOLO_RESTARTS < 2 ? 3 : 0))'

expect "two restarts" 0 $'^rank 1 restart 0$\n^kolorun: the job starts again: restart 1 of 2$\n^rank 1 restart 1$\n^rank 1 restart 2$' \
  "$kolorun" -np 2 --max-restarts 2 sh -c "$second"
expect "too few restarts" 3 $'^rank 1 restart 1$\n.*status 3$' "$kolorun" -np 2 --max-restarts 1 sh -c "$second"
! grep -q 'restart 2' <<<"$output" || fail "too few restarts: $output"
expect "none" 3 '^rank 1 restart 0$' "$kolorun" -np 2 sh -c "$second"
expect "by ssh" 0 $'^rank 0 restart 0$\n^rank 1 restart 2$' \
  "$kolorun" -H node1,node2 --network-interface lo --max-restarts 5 sh -c "$second"
expect "of an elastic job" 2 '--max-restarts is for jobs that are not elastic' \
  "$kolorun" -np 2 --min-np 1 --max-restarts 1 true
expect "of a program that does not exist" 127 "'./absent' cannot be run" "$kolorun" -np 1 --max-restarts 3 ./absent
! grep -q 'starts again' <<<"$output" || fail "of a program that does not exist: $output"
mkdir from
expect "in a directory, with files" 3 'restart 1 of 1' \
  "$kolorun" -np 2 --max-restarts 1 --wdir from --output-dir files sh -c "$second"
[[ $(cat from/files/rank.1.out) == "rank 1 restart 0" && $(cat from/files/restart.1/rank.1.out) == "rank 1 restart 1" ]] ||
  fail "in a directory, with files: $(head from/files/*.out from/files/*/*.out)"

# A session that breaks in the first attempt.
expect "with a session" 0 $'^generation 1: rank 2 of 3, commit 0$\n^done: rank 2 of 3, commit 6$' \
  "$kolorun" -np 3 --max-restarts 1 sh -c '[ $KOLO_RESTARTS = 1 ] && exec "$0" 6; exec "$0" 6 kill 1 1' "$rank_program"

# Two hosts on which the user starts kolorun.
(umask 077 && head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' >secret)
port=$((19000 + $$ % 2000))
two=(-np 2 --rendezvous "127.0.0.1:$port" --slots 1 --secret-file secret --max-restarts 3)
starts first.log "$kolorun" "${two[@]}" sh -c "$second"
first=$!
starts second.log "$kolorun" "${two[@]}" sh -c "$second"
ends "two hosts" $! 0 second.log
ends "two hosts" "$first" 0 first.log
cat first.log second.log >both.log
for rank in 0 1; do
  meets "two hosts" both.log "^rank $rank restart 2$"
done

# SIGTERM on the host that does not serve. Both say what has ended.
starts first.log "$kolorun" "${two[@]}" sh -c 'echo here; exec sleep 600'
first=$!
starts second.log "$kolorun" "${two[@]}" sh -c 'echo here; exec sleep 600'
job=$!
meets "SIGTERM on another host" first.log '^here$'
meets "SIGTERM on another host" second.log '^here$'
kill -TERM "$job"
ends "SIGTERM on another host" "$job" 143 second.log
ends "SIGTERM on another host" "$first" 143 first.log
! grep -q 'starts again' first.log second.log || fail "SIGTERM on another host: $(cat first.log second.log)"

# SIGHUP while a failed attempt ends: rank 0 takes its time.
starts late.log "$kolorun" -np 2 --max-restarts 9 --grace 60 sh -c \
  'if [ $RANK = 1 ]; then sleep 0.3; exit 3; fi; trap "echo told" TERM; while :; do sleep 0.1; done'
job=$!
meets "SIGHUP at the end" late.log '^told$'
kill -HUP "$job"
ends "SIGHUP at the end" "$job" 3 late.log
! grep -q 'starts again' late.log || fail "SIGHUP at the end: $(cat late.log)"

# A signal ends the job, and not only this attempt: SIGTERM or SIGHUP.
for signal in TERM HUP; do
  starts signal.log "$kolorun" -np 2 --max-restarts 9 sh -c 'echo here; exec sleep 600'
  job=$!
  meets "SIG$signal" signal.log '^here$' 2
  kill "-$signal" "$job"
  ends "SIG$signal" "$job" $((128 + $(kill -l "$signal"))) signal.log
  ! grep -q 'starts again' signal.log || fail "SIG$signal: $(cat signal.log)"
done

expect "a timeout" 143 'kolorun: the time of --timeout is over' "$kolorun" -np 2 --timeout 0.3 sleep 600
expect "a timeout in good order" 0 $'^kolorun: the time of --timeout is over$\n^stopped$' \
  "$kolorun" -np 2 --timeout 3 sh -c 'trap "echo stopped; exit 0" TERM; while :; do sleep 0.05; done'
expect "a timeout of all attempts" 143 'restart 1 of 9' \
  "$kolorun" -np 1 --timeout 3 --max-restarts 9 sh -c '[ $KOLO_RESTARTS = 0 ] && exit 1; exec sleep 600'
expect "a timeout by ssh" 143 'kolorun: the time of --timeout is over' \
  "$kolorun" -H node1,node2 --network-interface lo --timeout 1 sleep 600
expect "no time" 2 'NaN is no time' "$kolorun" -np 1 --timeout nan true
expect "a timeout that is not needed" 0 '^here$' "$kolorun" -np 1 --timeout 100 echo here
conclude kolorun_restarts
