#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC1091,SC2016,SC2046,SC2054,SC2086,SC2154
# Hosts that join, leave and return while kolorun runs a job; fake_ssh.sh provides the hosts.
#
# Usage: kolorun_elastic_test.sh KOLORUN RANK_PROGRAM DIRECTORY
here=$(cd "$(dirname "$0")" && pwd)
source "$here/jobs.sh"
export FAKE_SSH_DIR=$work KOLO_RSH="sh $here/fake_ssh.sh"
elastic=("$kolorun" --network-interface lo --cooldown 0.2:1 -v)
for_ever=("$rank_program" 1000000000)

# agent HOST: the process of its agent.
agent() { pgrep -f -- "--agent" | while read -r pid; do
  tr '\0' '\n' <"/proc/$pid/environ" 2>/dev/null | grep -qx "FAKE_HOST=$1" &&
    [[ $(readlink "/proc/$pid/exe") == "$kolorun" && $(cat "/proc/$pid/comm") == kolorun ]] && echo "$pid"
done | sort -n | tail -1; }

# Hosts that a script prints, if they answer.
discover="$here/../../examples/launch/discover_hosts.sh hosts"
echo changing1:2 >hosts
starts found.log "${elastic[@]}" -np 2 --min-np 1 --max-np 4 --host-discovery-script "$discover" "${for_ever[@]}"
job=$!
meets "discovery" found.log '^generation 1: rank 1 of 2, commit 0'
echo changing2:1 >>hosts
meets "a new host" found.log '^generation 2: rank 2 of 3, commit [1-9]'
# For a moment no descriptor is free.
prlimit --pid "$job" --nofile=3:
meets "no descriptor" found.log '--host-discovery-script: no pipe: Too many open files.*; the hosts stay as they are'
prlimit --pid "$job" --nofile=512:
printf 'changing1:2\nnode2:2\n' >hosts
meets "more slots" found.log '^generation [34]: rank [0-3] of 4, commit [1-9]'
grep -q PeerLeft found.log && fail "discovery: a host came in disorder: $(cat found.log)"
rm hosts
meets "a script that fails" found.log '--host-discovery-script: it has ended with status [12]; the hosts stay as they are'
# A moment without hosts is no change, and a host that is printed again stays.
printf '' >hosts
meets "no hosts" found.log 'it has printed no hosts; the hosts stay as they are'
touch down.changing1
printf 'changing1:2\nnode2:2\n' >hosts
meets "a host less" found.log '^generation [4-6]: rank 1 of 2, commit [1-9]'
grep -q PeerLeft found.log && fail "discovery: a host left in disorder: $(cat found.log)"
kill -TERM "$job"
ends "discovery" "$job" 143 found.log
rm down.changing1

# A host disappears, cannot be reached for a while, and returns.
starts return.log "${elastic[@]}" -H changing1:2,changing2:2 --min-np 2 "${for_ever[@]}"
job=$!
meets "a host that disappears" return.log '^generation 1: rank 3 of 4'
touch down.changing2
kill -KILL "$(agent changing2)"
meets "a host that disappears" return.log '^generation 2: rank 1 of 2, commit [1-9]'
meets "a host that is down" return.log 'No route to host' 2
meets "a host that is down" return.log 'host changing2: sh has ended with status 255; the next attempt is in [01]\.[0-9] s'
rm down.changing2
meets "a host that returns" return.log '^generation 3: rank 3 of 4, commit [1-9]'
# SIGTERM to its agent removes a host, in good order, and for good.
losses=$(grep -c PeerLeft return.log)
kill -TERM "$(agent changing2)"
meets "a host that is removed" return.log '^generation 4: rank 1 of 2, commit [1-9]'
(($(grep -c PeerLeft return.log) == losses)) || fail "removal: in disorder: $(cat return.log)"
kill -TERM "$job"
ends "a host that returns" "$job" 143 return.log

# A program that crashes before its first session, while another process waits for it.
expect "a crash loop" 3 \
  '^kolorun: the job has failed: 5 processes in a row have ended before they reached a session, and the job needs 2 ranks; the last one: .*node2\) is lost: it has ended with status 3$' \
  "$kolorun" --network-interface lo --cooldown 0.01:0.01 -H node1:1,node2:1 --min-np 2 sh -c \
  '[ $FAKE_HOST = node1 ] || exit 3; exec "$0" 5' "$rank_program"

# A rank that others report is killed, though it is stopped, and started again.
starts reported.log "${elastic[@]}" -np 3 --min-np 2 "${for_ever[@]}" report 1 1
job=$!
meets "a reported rank" reported.log 'rank 1 .*is lost: it does nothing'
meets "a reported rank" reported.log '^generation [23]: rank 2 of 3, commit [1-9]'
reported=$(sed -n 's/.*rank 1 (process \([0-9]*\) .*it does nothing.*/\1/p' reported.log | head -1)
gone "a reported rank" "$reported"
kill -TERM "$job"
ends "a reported rank" "$job" 143 reported.log
conclude "elastic kolorun"
