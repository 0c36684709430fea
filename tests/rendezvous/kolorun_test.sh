#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC1091,SC2016,SC2046,SC2054,SC2086,SC2154
# kolorun with real processes: their environment, the end of the job, and that no process remains.
#
# Usage: kolorun_test.sh KOLORUN RANK_PROGRAM DIRECTORY
here=$(cd "$(dirname "$0")" && pwd)
source "$here/jobs.sh"

expect "four ranks" 0 $'^generation 1: rank 3 of 4, commit 0$\n^done: rank 0 of 4, commit 5$' \
  "$kolorun" -np 4 "$rank_program" 5

expect "variables" 0 $'^\\[0\\] 0 2 0 2 127.0.0.1 x y$\n^\\[1\\] 1 2 1 2 127.0.0.1 x y$' \
  env HERE=y "$kolorun" -n 2 --tag-output -x GIVEN=x -x HERE sh -c \
  'echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $MASTER_ADDR $GIVEN $HERE'

expect "tags of lines without an end" 0 $'^\\[0\\] one$\n^\\[0\\] two$' \
  "$kolorun" -n 1 --tag-output printf 'one\ntwo'

expect "options of the program" 0 '^-np 7 --help$' "$kolorun" -np 1 echo -np 7 --help

expect "an exit status" 3 'rank 1 .*it has ended with status 3' \
  "$kolorun" -np 3 "$rank_program" 6 exit 1 1
expect "a signal" 137 'rank 1 .*signal 9' "$kolorun" -np 3 "$rank_program" 6 kill 1 1
expect "an exception" 1 'PeerLeft: rank 0 .*the data set is empty|rank 0 .*the data set is empty' \
  "$kolorun" -np 2 "$rank_program" 6 throw 1 0
expect "a program that does not exist" 127 "'./absent' cannot be run: No such file" \
  "$kolorun" -np 2 ./absent
expect "none in an elastic job" 127 "'./absent' cannot be run: No such file" \
  "$kolorun" -np 2 --min-np 1 ./absent
expect "no program" 2 'the program is missing' "$kolorun" -np 2
expect "an unknown option" 2 'there is no option --bogus' "$kolorun" -np 2 --bogus true
expect "no number" 2 '-np N is missing' "$kolorun" true
printf '%064d' 1 >known
expect "a secret that others can read" 2 "others can read or change 'known'" \
  "$kolorun" -np 1 --rendezvous 127.0.0.1:1 --slots 1 --secret-file known true
(umask 077 && printf '%064d' 0 >weak)
expect "a secret that anyone can guess" 2 'the secret has only 1 different byte values' \
  "$kolorun" -np 1 --rendezvous 127.0.0.1:1 --slots 1 --secret-file weak true
(umask 077 && head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' >good && mkfifo pipe)
expect "a secret from a pipe" 0 '^here$' \
  "$kolorun" -np 1 --rendezvous "127.0.0.1:$((17000 + $$ % 2000))" --slots 1 --secret-file <(cat good) \
  echo here
# In pieces: the first may be read alone.
(for ((i = 0; i < 64; i += 16)); do dd if=good bs=16 skip=$((i / 16)) count=1 status=none; done) >pipe &
expect "a secret in pieces" 0 '^here$' \
  "$kolorun" -np 1 --rendezvous "127.0.0.1:$((17000 + $$ % 2000))" --slots 1 --secret-file pipe echo here
expect "no secret file" 2 "'absent' cannot be read: No such file" \
  "$kolorun" -np 1 --rendezvous 127.0.0.1:1 --slots 1 --secret-file absent true
chmod 644 pipe
expect "a pipe that others can read" 2 "others can read or change 'pipe'" \
  "$kolorun" -np 1 --rendezvous 127.0.0.1:1 --slots 1 --secret-file pipe true
if chown 65534 pipe 2>/dev/null; then
  chmod 600 pipe
  expect "a pipe of another user" 2 "'pipe' belongs to another user" \
    "$kolorun" -np 1 --rendezvous 127.0.0.1:1 --slots 1 --secret-file pipe true
fi
if chown 65534 weak 2>/dev/null; then
  expect "a secret of another user" 2 "'weak' belongs to another user" \
    "$kolorun" -np 1 --rendezvous 127.0.0.1:1 --slots 1 --secret-file weak true
fi
# Timeouts that hide each other.
expect "a job that ends before its start" 0 'warning: --start-timeout 60 is not shorter than --timeout 50' \
  "$kolorun" -np 1 --start-timeout 60 --timeout 50 true
expect "a job that ends before it is elastic" 0 \
  'warning: --elastic-timeout 50 is not shorter than --timeout 50' \
  "$kolorun" -np 1 --min-np 1 --elastic-timeout 50 --timeout 50 true
expect "a process that is started too late" 0 'warning: --cooldown 10:600 is not shorter than --elastic-timeout 5' \
  "$kolorun" -np 1 --min-np 1 --elastic-timeout 5 true
expect "ranks that give up first" 0 'warning: KOLO_PEER_TIMEOUT=10 is not longer than --lease 10' \
  "$kolorun" -np 1 -x KOLO_PEER_TIMEOUT=10 true
expect "ranks that wait longer" 0 '^\[60\] \[\]$' \
  sh -c 'echo $("$0" -np 1 --lease 40 sh -c "echo [\$KOLO_PEER_TIMEOUT]") \
    $("$0" -np 1 --lease 20 --timeout 50 --min-np 1 sh -c "echo [\$KOLO_PEER_TIMEOUT]" 2>&1)' "$kolorun"

expect "help" 0 $'--rendezvous\nExit status' "$kolorun" --help

# Without sessions it is a starter of processes.
expect "files" 0 '' "$kolorun" -np 2 --output-dir files sh -c 'echo out $RANK; echo error $RANK >&2'
for rank in 0 1; do
  [[ $(cat "files/rank.$rank.out") == "out $rank" && $(cat "files/rank.$rank.err") == "error $rank" ]] ||
    fail "files: of rank $rank"
done
expect "a folder of files that does not exist" 0 '' "$kolorun" -np 1 --output-dir files/of/now echo here
[[ $(cat files/of/now/rank.0.out) == here ]] || fail "a folder of files that does not exist: $output"
[[ $(echo input | timeout 100 "$kolorun" -np 2 cat) == input ]] || fail "input: only rank 0 reads it"

expect "two dashes" 0 '^a -b$' "$kolorun" -np 1 -- echo a -b
mkdir bin
printf '#!/bin/sh\necho found $TWICE\n' >bin/program-of-path
chmod +x bin/program-of-path
expect "PATH of -x" 0 '^found 2$' "$kolorun" -np 1 -x "PATH=$PWD/bin:$PATH" -x TWICE=1 -x TWICE=2 program-of-path
expect "MASTER_ADDR of -x" 0 '^MASTER_ADDR=here$' "$kolorun" -np 1 -x MASTER_ADDR=here env
(($(grep -c '^MASTER_ADDR=' <<<"$output") == 1)) || fail "MASTER_ADDR of -x: $output"
expect "kolorun's own variables" 2 'kolorun sets this variable' "$kolorun" -np 1 -x KOLO_RENDEZVOUS=here:1 true
expect "status 255" 255 'it has ended with status 255' "$kolorun" -np 1 sh -c 'exit 255'
expect "a variable without a name" 2 'the variable has no name' "$kolorun" -np 1 -x =3 true
expect "too few slots" 2 '2 slots are too few for 4' "$kolorun" -np 4 --min-np 1 --slots 2 true

# kolorun is stopped for longer than its lease, and goes on.
starts stopped.log "$kolorun" -np 2 --lease 1 "$rank_program" 1000000000
stopped=$!
meets "stopped" stopped.log '^generation 1: rank 1 of 2'
kill -STOP "$stopped"
sleep 2.5
kill -CONT "$stopped"
expect "stopped" 0 '' "$kolorun" -np 2 "$rank_program" 5
kill -TERM "$stopped"
ends "stopped" "$stopped" 143 stopped.log
grep -q PeerLeft stopped.log && fail "stopped: $(cat stopped.log)"
# Whoever reads the output pauses for longer than the lease; nothing is lost.
lines=$("$kolorun" -np 2 --lease 1 --tag-output sh -c 'seq 200000' 2>paused.log | (sleep 3; wc -l))
((lines == 400000)) || fail "paused: $lines lines, $(cat paused.log)"
# A parent that does not wait for its children ignores SIGCHLD; so does what it starts.
expect "an ignored SIGCHLD" 3 'status 3' \
  timeout 60 python3 -c 'import os, signal, sys
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
os.execv(sys.argv[1], sys.argv[1:])' "$kolorun" -np 2 sh -c 'exit 3'
# Output that cannot be written is mentioned, and a closed descriptor is not taken for another.
expect "a full disk" 1 'standard output cannot be written, and is lost: No space left' \
  sh -c '"$@" >/dev/full' sh "$kolorun" -np 1 --tag-output echo here
expect "no standard input" 0 '^0$' sh -c '"$@" <&-' sh "$kolorun" -np 1 wc -c
expect "few descriptors" 0 $'^\\[0\\] 40$\n^\\[19\\] 40$' \
  bash -c 'ulimit -Sn 40; exec "$@"' bash "$kolorun" -np 20 --tag-output sh -c 'ulimit -Sn'
# nohup
starts nohup.log nohup "$kolorun" -np 1 sh -c 'echo here; exec sleep 1000'
stopped=$!
meets "nohup" nohup.log '^here$'
kill -HUP "$stopped"
kill -TERM "$stopped"
ends "nohup" "$stopped" 143 nohup.log

# Survivors meet again, and a lost process is started again.
expect "a loss" 0 $'generation 2: rank 0 of [23], commit 3\ndone: rank 0 of [23], commit 6' \
  "$kolorun" -np 3 --min-np 2 --cooldown 0.1:1 "$rank_program" 6 kill 1 1
expect "the loss of rank 0" 0 $'generation 2: rank 0 of 2, commit 3\ndone: rank 1 of [23], commit 6' \
  "$kolorun" -np 3 --min-np 2 --cooldown 100:100 "$rank_program" 6 kill 1 0
expect "too many losses" 1 'the session was lost 1 times, and the limit is 0' \
  "$kolorun" -np 3 --min-np 2 --reset-limit 0 "$rank_program" 6 kill 1 1

# Two hosts, which are two of them on this one. The second joins the first.
(umask 077 && head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' >secret)
# Below the ports that the system gives to whoever asks for any.
port=$((20000 + $$ % 4000))
two=(-np 4 --rendezvous "127.0.0.1:$port" --slots 2 --secret-file secret)
starts second.log "$kolorun" "${two[@]}" "$rank_program" 5
expect "two hosts" 0 $'(generation 1|done): rank [0-3] of 4' "$kolorun" "${two[@]}" "$rank_program" 5
ends "two hosts" $! 0 second.log

# A second job at the port of the first is refused; after the first it may have it.
port=$((port + 1))
alone=(-np 1 --rendezvous "127.0.0.1:$port" --slots 1 --secret-file secret --lease 3)
for elastic in "" "--min-np 1"; do
  starts first.log "$kolorun" "${alone[@]}" $elastic "$rank_program" 1000000000
  first=$!
  meets "a second job" first.log '^generation 1: rank 0 of 1'
  expect "the same job again" 1 'refuses this host: .*this host already takes part; use a different port for each job' \
    "$kolorun" "${alone[@]}" $elastic "$rank_program" 1000000000
  expect "a second job" 1 'refuses this host: this server runs job -np 1 .*rank_program .*, but the agent belongs to job -np 1 ' \
    "$kolorun" "${alone[@]}" $elastic "$rank_program" 5
  kill -TERM "$first"
  ends "a second job" "$first" 143 first.log
done
starts first.log "$kolorun" "${alone[@]}" --grace 3 sh -c 'trap "" TERM; echo here; while :; do sleep 0.1; done'
first=$!
meets "the next job" first.log '^here$'
kill -TERM "$first"
meets "the next job" first.log 'signal 15: the job ends'
expect "the next job" 0 '^done: rank 0 of 1, commit 5$' "$kolorun" "${alone[@]}" "$rank_program" 5
ends "the next job" "$first" 143 first.log

# A signal before all hosts have come ends the others too.
port=$((port + 1))
three=(-np 6 --rendezvous "127.0.0.1:$port" --slots 2 --secret-file secret -v true)
starts first.log "$kolorun" "${three[@]}"
first=$!
until (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do sleep 0.05; done
starts second.log "$kolorun" "${three[@]}"
second=$!
meets "a signal before the start" first.log 'waiting for hosts: 4 of 6 slots are available'
kill -TERM "$first"
ends "a signal before the start" "$first" 143 first.log
ends "a signal before the start" "$second" 143 second.log

# One that looks for a server says so, and can be ended.
starts search.log "$kolorun" -np 4 --rendezvous nowhere.invalid:4711 --slots 2 --secret-file secret true
search=$!
meets "no server" search.log 'still looking for the rendezvous server: .*nowhere.invalid'
kill -TERM "$search"
ends "no server" "$search" 143 search.log
expect "no server in time" 1 'no rendezvous server was found within 0.2 s: .*nowhere.invalid' \
  "$kolorun" -np 4 --rendezvous nowhere.invalid:4711 --slots 2 --secret-file secret --start-timeout 0.2 true

# One of two hosts goes away, announced or not; the other one goes on.
for signal in KILL TERM; do
  port=$((port + 1))
  two=(-np 4 --min-np 2 --rendezvous "127.0.0.1:$port" --slots 2 --secret-file secret)
  starts first.log "$kolorun" "${two[@]}" "$rank_program" 1000000000
  first=$!
  until (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do
    sleep 0.05
  done
  starts second.log "$kolorun" "${two[@]}" "$rank_program" 1000000000
  second=$!
  meets "$signal of a host" second.log '^generation 1: rank 3 of 4'
  meets "$signal of a host" first.log '^generation 1: rank 0 of 4'
  kill "-$signal" "$second"
  ends "$signal of a host" "$second" "$([[ $signal == KILL ]] && echo 137 || echo 0)" second.log
  meets "$signal of a host" first.log '^generation 2: rank 1 of 2, commit [1-9]'
  [[ $signal == KILL ]] || ! grep -q PeerLeft first.log second.log ||
    fail "$(printf 'removal: not in good order\n%s' "$(cat first.log second.log)")"
  kill -TERM "$first"
  wait "$first"
done

# After SIGTERM the ranks may end in good order; a second one, or one that fails, ends the job.
# Usage: orderly NAME STATUS COMMAND   COMMAND: what the test does once both ranks have the signal
orderly() {
  rm -f go_on fail.1
  starts orderly.log "$kolorun" -np 2 sh -c 'trap "echo told \$RANK; until [ -e go_on ]; do sleep 0.05; done; exit \$(cat fail.\$RANK 2>/dev/null || echo 0)" TERM
    echo here; while :; do sleep 0.05; done'
  job=$!
  meets "$1" orderly.log '^here$' 2
  kill -TERM "$job"
  meets "$1" orderly.log '^told [01]$' 2
  eval "$3"
  ends "$1" "$job" "$2" orderly.log
}
orderly "in good order" 0 'touch go_on'
orderly "SIGTERM twice at once" 0 'kill -TERM "$job"; touch go_on'
orderly "a second signal" 129 'kill -HUP "$job"'
orderly "a second SIGTERM" 143 'sleep 1.1; kill -TERM "$job"' # sooner it would count as the same
orderly "a rank that fails" 3 'echo 3 >fail.1; touch go_on'

# A signal ends the job, with a process that ignores SIGTERM and one that is stopped.
starts signal.log "$kolorun" -np 2 --grace 2 sh -c 'trap "" TERM; echo $$ >pid.$RANK; while :; do sleep 0.1; done'
until [[ -s pid.0 && -s pid.1 ]]; do sleep 0.05; done
kill -STOP "$(cat pid.1)"
kill -TERM $!
ends signal $! 143 signal.log
gone signal "$(cat pid.0)" "$(cat pid.1)"
conclude kolorun
