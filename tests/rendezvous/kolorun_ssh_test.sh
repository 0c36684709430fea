#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC1091,SC2016,SC2046,SC2054,SC2086,SC2154
# kolorun on hosts that it reaches by ssh. fake_ssh.sh runs all of them on this host.
#
# Usage: kolorun_ssh_test.sh KOLORUN RANK_PROGRAM DIRECTORY
here=$(cd "$(dirname "$0")" && pwd)
source "$here/jobs.sh"
export FAKE_SSH_DIR=$work KOLO_RSH="sh $here/fake_ssh.sh"
on_two=("$kolorun" -H node1:2,node2:2 --network-interface lo)

expect "ranks by host" 0 $'^0 4 0 2 node1$\n^1 4 1 2 node1$\n^2 4 0 2 node2$\n^3 4 1 2 node2$' \
  "${on_two[@]}" sh -c 'echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $FAKE_HOST'
expect "a session" 0 $'^generation 1: rank 3 of 4, commit 0$\n^done: rank 0 of 4, commit 5$' \
  "${on_two[@]}" "$rank_program" 5
expect "fewer processes than slots" 0 '^done: rank 2 of 3, commit 5$' "${on_two[@]}" -np 3 "$rank_program" 5
rm calls
expect "a host that is not needed" 0 $'^0 node1$\n^1 node1$' "${on_two[@]}" -np 2 sh -c 'echo $RANK $FAKE_HOST'
! grep -q '^node2' calls || fail "a host that is not needed: $(cat calls)"
expect "this host and another" 0 $'^0$\n^1 node2$' \
  "$kolorun" -H localhost,node2 --network-interface lo sh -c 'echo $RANK $FAKE_HOST'
expect "this host by its address" 0 $'^0$\n^1$\n^2$' \
  "$kolorun" -H "127.0.0.1,[::1]:1,$(hostname)" --rsh false sh -c 'echo $RANK $FAKE_HOST'
expect "an option for the command" 0 '^0 node1$' env -u KOLO_RSH \
  "$kolorun" -H node1 --network-interface lo --rsh "sh $here/fake_ssh.sh" sh -c 'echo $RANK $FAKE_HOST'

export OTHER=secret
expect "variables" 0 $'^1 x y 7 - node1 lo$' env HERE=y KOLO_STALL_WARNING=7 \
  "${on_two[@]}" -np 3 -x GIVEN=x -x HERE sh -c \
  'echo $RANK $GIVEN $HERE $KOLO_STALL_WARNING ${OTHER:--} $MASTER_ADDR $KOLO_CONTROL_INTERFACE'
expect "interfaces of NCCL" 0 '^eth9$' env NCCL_SOCKET_IFNAME=eth9 \
  "$kolorun" -H node1 --network-interface lo sh -c 'echo $NCCL_SOCKET_IFNAME'
expect "words of the program" 0 "^a b[$]c 'd' \"e\"\$" "$kolorun" -H node1 --network-interface lo echo \
  "a b\$c 'd' \"e\""
expect "the directory" 0 "^$work\$" "$kolorun" -H node1 --network-interface lo pwd
mkdir below
expect "a relative directory" 0 "^$work/below\$" "$kolorun" -H node1 --network-interface lo --wdir below pwd
expect "this host twice" 0 $'^0 2$\n^1 2$' "$kolorun" -H localhost,127.0.0.1 sh -c 'echo $LOCAL_RANK $LOCAL_WORLD_SIZE'
ln -s below "$work/linked"
(cd linked && expect "a linked directory" 0 "^$work/linked\$" "$kolorun" -H node1 --network-interface lo sh -c pwd
  exit "$failed") || failed=1
expect "another directory" 0 '^/tmp$' "$kolorun" -H node1 --network-interface lo --wdir /tmp pwd
expect "no such directory" 1 'kolorun on node1: the directory of the processes, /absent' \
  "$kolorun" -H node1 --network-interface lo --wdir /absent pwd
expect "tags" 0 $'^\\[0\\] node1$\n^\\[3\\] node2$' "${on_two[@]}" --tag-output sh -c 'echo $FAKE_HOST'
expect "files" 0 '' "${on_two[@]}" --output-dir files sh -c 'echo $RANK'
[[ $(cat files/rank.3.out) == 3 ]] || fail "files: of rank 3"
[[ $(seq 100000 | timeout 100 "${on_two[@]}" md5sum 2>&1 | sort | uniq -c) == *"1 $(seq 100000 | md5sum)"* ]] ||
  fail "input: rank 0 reads all of it"

# Whoever reads the output pauses for longer than hosts have to end; nothing is lost.
lines=$("${on_two[@]}" sh -c 'seq 200000' 2>paused.log | (sleep 7; wc -l))
((lines == 800000)) || fail "paused: $lines lines, $(cat paused.log)"

printf 'node1 slots=1 # the first\n\nnode2:2\n' >hostfile
expect "a hostfile" 0 $'^0 3 node1$\n^2 3 node2$' "$kolorun" --hostfile hostfile --network-interface lo sh -c \
  'echo $RANK $WORLD_SIZE $FAKE_HOST'
echo 'node1 cores=4' >wrong
expect "a wrong hostfile" 2 "wrong, line 1: 'cores=4' is not slots=N" "$kolorun" --hostfile wrong true
expect "a wrong host" 2 "'-oProxyCommand=x' is not a host name" "$kolorun" -H node1,-oProxyCommand=x true
expect "too few slots" 2 '4 slots are too few for 5' "${on_two[@]}" -np 5 true

expect "an exit status" 3 'rank 3 .* on node2.*status 3|rank 3 .*it has ended with status 3' \
  "${on_two[@]}" "$rank_program" 6 exit 1 3
expect "a signal" 137 'rank 2 .*signal 9' "${on_two[@]}" "$rank_program" 6 kill 1 2
expect "a program that does not exist" 127 "kolorun on node2: './absent' cannot be run" "${on_two[@]}" ./absent
touch down.node2
expect "a host that does not answer" 1 $'No route to host\n^kolorun: the job has failed: host node2: sh has ended with status 255$' \
  "${on_two[@]}" "$rank_program" 5
rm down.node2
expect "no ssh" 127 "'./absent' cannot be run" "$kolorun" -H node1 --rsh ./absent true

# Nobody sees secrets or variables in a list of processes.
grep -qvE "^node[12] '[^ ]*kolorun' --agent$" calls && fail "calls: $(grep -vE "^node[12] '[^ ]*kolorun' --agent$" calls)"

# Signals reach the processes of all hosts.
starts signal.log "${on_two[@]}" --grace 2 sh -c 'trap "echo usr1 $RANK" USR1; trap "" TERM; echo $$ >pid.$RANK; while :; do sleep 0.1; done'
job=$!
until [[ -s pid.0 && -s pid.1 && -s pid.2 && -s pid.3 ]]; do sleep 0.05; done
kill -USR1 "$job"
meets "USR1" signal.log '^usr1 3$'
kill -TERM "$job"
ends "TERM" "$job" 143 signal.log
gone "TERM" $(cat pid.?)
# The kolorun of the job is killed: nothing remains.
rm pid.?
starts signal.log "${on_two[@]}" sh -c 'echo $$ >pid.$RANK; sleep 1000'
job=$!
until [[ -s pid.0 && -s pid.1 && -s pid.2 && -s pid.3 ]]; do sleep 0.05; done
kill -KILL "$job"
wait "$job"
gone "KILL" $(cat pid.?)
conclude "kolorun by ssh"
