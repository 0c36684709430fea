#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A kolorun on each of two hosts that network namespaces emulate, each with an interface that leads
# nowhere: the tests of the collectives, with two ranks on each host and no MPI. Then a rank is killed
# before a batch, and the ranks of the other host say which. Needs root.
#
# Usage: two_networks.sh KOLORUN DEPARTURE_PROGRAM DIRECTORY TESTS...
set -uo pipefail
kolorun=$1
departure=$2
work=$3
shift 3
first=kolo-one-$$ second=kolo-two-$$
ip netns add "$first" 2>/dev/null || { echo "no network namespaces here"; exit 77; }
remove_hosts() {
  local host pid
  for host in "$first" "$second"; do
    for pid in $(ip netns pids "$host" 2>/dev/null); do kill -KILL "$pid" 2>/dev/null; done
    ip netns delete "$host" 2>/dev/null
  done
}
trap remove_hosts EXIT
ip netns add "$second" || exit 1
ip -n "$first" link add wire type veth peer name wire netns "$second" || exit 1
number=1
for host in "$first" "$second"; do
  ip -n "$host" link set lo up
  # Before the wire, so that it is tried first.
  ip -n "$host" link add dead type veth peer name deader
  ip -n "$host" address add "10.213.67.$number/24" dev dead
  ip -n "$host" link set dead up
  ip -n "$host" link set deader up
  ip -n "$host" address add "10.213.78.$number/24" dev wire
  ip -n "$host" link set wire up
  number=$((number + 1))
done
rm -rf "$work"
mkdir -p "$work"
cd "$work" || exit 1
head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' >secret

# on_both PROGRAM [ARGUMENTS...]: the status of the first host
on_both() {
  local job=(timeout 100 "$kolorun" -np 4 --rendezvous 10.213.78.1:4711 --slots 2 --secret-file secret
    --start-timeout 60 "$@")
  ip netns exec "$second" "${job[@]}" >second.log 2>&1 </dev/null &
  local other=$! status=0
  ip netns exec "$first" "${job[@]}" >first.log 2>&1 </dev/null || status=$?
  wait "$other"
  return $status
}

fail() {
  cat first.log second.log
  echo "two_networks: $*" >&2
  exit 1
}

for test in "$@"; do on_both "$test" || fail "$test failed"; done
export KOLO_CONTROL_INTERFACE=10.213.78.0/24
for test in "$@"; do on_both "$test" || fail "$test failed on one network"; done
on_both "$departure" killed 1 && fail "a lost rank is no failure"
for rank in 2 3; do
  grep -qE "rank $rank misses rank 1 after" second.log || fail "rank $rank says nothing"
done
