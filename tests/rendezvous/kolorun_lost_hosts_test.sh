#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC1091,SC2046,SC2154
# What kolorun says last when a job loses a host: that host and its ranks, and not one of the ranks
# that have missed them. The hosts are network namespaces. Needs root.
#
# Usage: kolorun_lost_hosts_test.sh KOLORUN RANK_PROGRAM DIRECTORY SESSION_PROGRAM
here=$(cd "$(dirname "$0")" && pwd)
source "$here/jobs.sh"
source "$here/namespaces.sh"
session_program=$4
export KOLO_FLIGHT_RECORDER_DIR=off
# As ssh does, it runs on the first host, and does not learn that the other host is cut off.
cat >rsh <<END
#!/bin/sh
shift
echo \$\$ >$work/rsh.pid
ip netns exec $second env FAKE_HOST=second sh -c "\$*"
ip -n $second link show wire | grep -q 'state UP' || sleep 1000
exit 255
END

# agent: the process of the agent on the second host.
agent() { for pid in $(ip netns pids "$second"); do
  [[ $(cat "/proc/$pid/comm") == kolorun ]] && echo "$pid"
done; }
# loses NAME HOSTS RANKS CAUSE COMMAND...: after the command, the job on these hosts ends because of
# the second one, which had these ranks. `options` are for kolorun.
loses() {
  local name=$1 hosts=$2 ranks=$3 cause=$4 job rank
  shift 4
  starts log "${on_first[@]}" "$kolorun" -H "$hosts" --rsh "sh $work/rsh" --network-interface wire \
    "${options[@]}" "$session_program"
  job=$!
  for rank in 0 1 2 3; do meets "$name" log "^rank $rank has begun" || return; done
  "$@"
  ends "$name" "$job" 1 log
  mend_cable
  tail -n 1 log | grep -qE "^kolorun: the job has failed: $cause; with it: $ranks\$" ||
    fail "$name: the last line does not match '$cause; with it: $ranks': $(cat log)"
}
closed='(host second: sh has ended with status 255|the agent on second is lost: its connection .*)'
silent='the agent on second is lost: it sent nothing for [0-9]+ s'
kills_agent() { kill -KILL $(agent); }
kills_ssh() { kill -KILL "$(cat rsh.pid)"; }
options=()
loses "an agent" localhost:2,second:2 "rank 2, rank 3" "$closed" kills_agent
loses "the agent of rank 0" second:2,localhost:2 "rank 0, rank 1" "$closed" kills_agent
loses "ssh" localhost:2,second:2 "rank 2, rank 3" 'host second: sh was ended by signal 9' kills_ssh
options=(--lease 3 --grace 1)
loses "a cable" localhost:2,second:2 "rank 2, rank 3" "$silent" cut_cable
# The ranks notice it long before the server does.
options=(--lease 5 --grace 1 -x KOLO_PEER_TIMEOUT=1)
loses "ranks that notice before" localhost:2,second:2 "rank 2, rank 3" "$silent" cut_cable
loses "the host of rank 0" second:2,localhost:2 "rank 0, rank 1" "$silent" cut_cable
grep -qxF 'kolorun: ranks 2-3 waited in barrier' <(sed 's/ #[0-9]*$//' log) ||
  fail "the host of rank 0: nothing says what the others waited for: $(cat log)"

# One kolorun on each host: that of the second one says that the host of rank 0 is lost, after all
# that its ranks say. The first one, if it lives, says the same of the second.
(umask 077 && head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' >secret)
two=(-np 4 --rendezvous 10.213.78.1:4711 --slots 2 --secret-file secret --network-interface wire "${options[@]}")
kills_first() { for pid in $(ip netns pids "$first"); do
  [[ $(cat "/proc/$pid/comm") != kolorun ]] || kill -KILL "$pid"
done; }
for way in kills_first cut_cable; do
  starts first.log "${on_first[@]}" "$kolorun" "${two[@]}" "$session_program"
  one=$!
  starts second.log "${on_second[@]}" "$kolorun" "${two[@]}" "$session_program"
  other=$!
  meets "$way" first.log '^rank 0 has begun' && meets "$way" second.log '^rank 3 has begun' || break
  "$way"
  ends "$way" "$other" 1 second.log
  tail -n 1 second.log | grep -qE "^kolorun: the job has failed: the rendezvous server at 10.213.78.1:4711 (is gone|sent nothing).*: the host of rank 0 is lost, or this host is cut off\$" ||
    fail "$way: $(cat second.log)"
done
ends "the first kolorun" "$one" 1 first.log
mend_cable
tail -n 1 first.log | grep -qE "^kolorun: the job has failed: $silent; with it: rank 2, rank 3\$" ||
  fail "the first kolorun: $(cat first.log)"
conclude "kolorun and lost hosts"
