#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC1091,SC2016,SC2046,SC2154
# On which hosts kolorun starts agents, and how many at the same time; scripts that run everything on
# this host stand for ssh.
#
# Usage: starts_test.sh KOLORUN RANK_PROGRAM DIRECTORY
rendezvous=$(cd "$(dirname "$0")/../../rendezvous" && pwd)
source "$rendezvous/jobs.sh"
export FAKE_SSH_DIR=$work KOLO_RSH="sh $rendezvous/fake_ssh.sh"
for_ever=("$rank_program" 1000000000)

# A replacement of ssh that starts the command once somebody writes to the pipe gate.HOST.
cat >gated_ssh.sh <<'SSH'
echo "$1" >>"$FAKE_SSH_DIR/calls"
read -r _ <"$FAKE_SSH_DIR/gate.$1"
exec sh "$RENDEZVOUS/fake_ssh.sh" "$@" 2>>"$FAKE_SSH_DIR/errors"
SSH
export RENDEZVOUS=$rendezvous

# called: the hosts on which kolorun has started agents, each as often as it has.
called() { cut -d ' ' -f 1 calls | sort | tr '\n' ' '; }
# agent HOST: the process of its agent.
agent() { pgrep -f -- "--agent" | while read -r pid; do
  tr '\0' '\n' <"/proc/$pid/environ" 2>/dev/null | grep -qx "FAKE_HOST=$1" &&
    [[ $(readlink "/proc/$pid/exe") == "$kolorun" && $(cat "/proc/$pid/comm") == kolorun ]] && echo "$pid"
done | sort -n | tail -1; }
# answers NAME LOG: waits until kolorun has answered a signal. Before it does, it starts all that it may.
answers() {
  local times
  times=$(grep -c 'SIGTSTP .* is ignored' "$2")
  kill -TSTP "$job"
  meets "$1" "$2" 'SIGTSTP .* is ignored' $((times + 1))
}
begins() {
  rm -f down.*
  : >calls
}

# ---- how many agents start at the same time ----

mkfifo gate.node{1,2,3,4,5}
begins
KOLO_RSH="sh $work/gated_ssh.sh" starts wide.log "$kolorun" -H node1,node2,node3,node4,node5 --fanout 2 \
  --lease 1000 --network-interface lo sh -c 'echo $RANK $FAKE_HOST'
job=$!
meets "two at a time" calls '^node2'
answers "two at a time" wide.log
(($(pgrep -c -P "$job") == 2)) || fail "two at a time: $(pgrep -a -P "$job")"
echo >gate.node1
meets "the next one" calls '^node3'
answers "the next one" wide.log
(($(pgrep -c -P "$job") == 3)) || fail "the next one: $(pgrep -a -P "$job")"
for host in node2 node3 node4 node5; do echo >"gate.$host"; done
ends "two at a time" "$job" 0 wide.log
meets "two at a time" wide.log '^4 node5$'

# A host that does not respond keeps its place no longer than the lease, and a spare one replaces it.
begins
KOLO_RSH="sh $work/gated_ssh.sh" starts hangs.log "$kolorun" -H node1,node2,node3 -np 1 --max-np 1 --fanout 1 \
  --lease 3 --network-interface lo "$rank_program" 5
job=$!
meets "a host that does not respond" calls '^node2'
echo >gate.node2
meets "a host that does not respond" hangs.log '^done: rank 0 of 1, commit 5$'
ends "a host that does not respond" "$job" 0 hangs.log

# ---- hosts of an elastic job ----

elastic=("$kolorun" --network-interface lo -v -np 2 --min-np 1 --max-np 2)

# A host is lost: one more gets an agent, and the lost one is not tried again.
begins
starts lost.log "${elastic[@]}" --cooldown 0.1:0.1 -H node1,node2,node3,node4 "${for_ever[@]}"
job=$!
meets "hosts that are needed" lost.log '^generation 1: rank 1 of 2'
[[ $(called) == "node1 node2 " ]] || fail "hosts that are needed: $(called)"
kill -KILL "$(agent node2)"
meets "a lost host" lost.log 'host node2: sh has ended with status 137; a spare host replaces it'
meets "a lost host" lost.log '^generation [23]: rank 1 of 2, commit [1-9]'
[[ $(called) == "node1 node2 node3 " ]] || fail "a lost host: $(called)"
# Only its agent is stopped, so that its ssh does not end.
stopped=$(agent node3)
kill -STOP "$stopped"
meets "a silent host" lost.log '^generation [4-6]: rank 1 of 2, commit [1-9]'
[[ $(called) == "node1 node2 node2 node3 " || $(called) == "node1 node2 node3 node4 " ]] || fail "a silent host: $(called)"
kill -CONT "$stopped"
kill -TERM "$job"
ends "a lost host" "$job" 143 lost.log

# A process is lost, and its host must rest.
begins
starts rests.log "${elastic[@]}" --cooldown 600:600 -H node1,node2,node3 "${for_ever[@]}"
job=$!
meets "a lost process" rests.log '^generation 1: rank 1 of 2'
pkill -KILL -P "$(agent node2)"
meets "a lost process" rests.log '^generation [23]: rank 1 of 2, commit [1-9]'
[[ $(called) == "node1 node2 node3 " ]] || fail "a lost process: $(called)"
kill -TERM "$job"
ends "a lost process" "$job" 143 rests.log

# A host that cannot be reached at the start.
begins
touch down.node1
expect "a host that is down" 0 $'host node1: sh has ended with status 255; a spare host replaces it\n^done: rank 0 of 1, commit 5$' \
  "$kolorun" --network-interface lo -np 1 --max-np 1 -H node1,node2,node3 "$rank_program" 5
[[ $(called) == "node1 node2 " ]] || fail "a host that is down: $(called)"

# Discovered hosts.
begins
printf 'node1\nnode2\nnode3\n' >hosts
starts found.log "${elastic[@]}" --host-discovery-script 'cat hosts; echo >>runs' "${for_ever[@]}"
job=$!
meets "discovered hosts" found.log '^generation 1: rank 1 of 2'
meets "discovered hosts" runs '^' 2
[[ $(called) == "node1 node2 " ]] || fail "discovered hosts: $(called)"
printf 'node1\nnode3\n' >hosts
meets "a removed host" found.log '^generation [23]: rank 1 of 2, commit [1-9]'
[[ $(called) == "node1 node2 node3 " ]] || fail "a removed host: $(called)"
grep -q PeerLeft found.log && fail "a removed host: in disorder: $(cat found.log)"
kill -TERM "$job"
ends "discovered hosts" "$job" 143 found.log

# A job in good order starts no agent in the place of a process that has done its work.
begins
expect "work that is done" 0 '^done: rank 0 of 1, commit 5$' "$kolorun" --network-interface lo -np 2 --max-np 2 --min-np 1 -H node1,node2,node3 \
  sh -c '[ $FAKE_HOST = node2 ] || exec "$0" 5' "$rank_program"
[[ $(called) == "node1 node2 " ]] || fail "work that is done: $(called)"
conclude "the starts of kolorun"
