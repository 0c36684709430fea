#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC1091,SC2016,SC2154
# kolorun --port-range: kolorun and the ranks listen only at these ports.
#
# Usage: ports_test.sh KOLORUN RANK_PROGRAM DIRECTORY SESSION_PROGRAM
rendezvous=$(cd "$(dirname "$0")/../../rendezvous" && pwd)
source "$rendezvous/jobs.sh"
session_program=$4
export FAKE_SSH_DIR=$work KOLO_RSH="sh $rendezvous/fake_ssh.sh" KOLO_FLIGHT_RECORDER_DIR=off
first=$((24000 + $$ % 900 * 8))
last=$((first + 7))
shows='echo ${KOLO_RENDEZVOUS##*:} ${MASTER_PORT} $KOLO_PORT_RANGE'

expect "the port of the server" 0 "^$first $((first + 1)) $first:$last\$" \
  "$kolorun" -np 1 --port-range "$first:$last" sh -c "$shows"
expect "on another host" 0 "^$first $((first + 1)) $first:$last\$" \
  "$kolorun" -H node1 --network-interface lo --port-range "$first:$last" sh -c "$shows"
expect "by the variable" 0 "^$first $((first + 1)) $first:$last\$" \
  env "KOLO_PORT_RANGE=$first:$last" "$kolorun" -np 1 sh -c "$shows"
python3 -c 'import signal, socket, sys
with socket.create_server(("127.0.0.1", int(sys.argv[1]))):
    print("listening", flush=True)
    signal.pause()' "$first" >other.log &
other=$!
meets "a port in use" other.log listening
expect "a port in use" 0 "^$((first + 1)) $first $first:$((first + 1))\$" \
  "$kolorun" -np 1 --port-range "$first:$((first + 1))" sh -c "$shows"
expect "no free port" 1 "no port of $first:$first is free to listen at: .*Address already in use" \
  "$kolorun" -np 1 --port-range "$first:$first" true
kill "$other"

# The ranks of two hosts of one machine connect by sockets, at ports of the range.
starts session.log "$kolorun" -np 4 --port-range "$first:$last" -x KOLO_TEST_RANKS_PER_HOST=2 \
  "$session_program"
job=$!
meets "a session" session.log '^rank [0-3] has begun' 4
# One connection for control messages, and for data one of each pair of ranks.
accepted=0
for ((port = first + 1; port <= last; ++port)); do
  ((accepted += $(grep -cE "^ *[0-9]+: [0-9A-F]+:$(printf %04X "$port") [0-9A-F]+:[0-9A-F]+ 01 " /proc/net/tcp)))
done
((accepted >= 7)) || fail "a session: only $accepted connections at ports of the range"
kill -TERM "$job"
wait "$job"
expect "too few ports" 1 'no port of port_range [0-9]+:[0-9]+ is free' \
  "$kolorun" -np 4 --port-range "$first:$first" -x KOLO_TEST_RANKS_PER_HOST=2 "$session_program"

for range in 1 0:9 9:8 a:b 1:65536 1:2:3 -1:5; do
  expect "no range: $range" 2 "'$range' is not two ports" "$kolorun" -np 1 --port-range="$range" true
done
expect "no range in the variable" 2 "KOLO_PORT_RANGE: 'x' is not two ports" \
  env KOLO_PORT_RANGE=x "$kolorun" -np 1 true
conclude "kolorun --port-range"
