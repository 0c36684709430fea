#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A kolorun on each of two hosts emulated by network namespaces, each with an interface that leads
# nowhere. Runs the tests of the collectives, with two ranks on each host and without MPI. Then a
# rank is killed before a batch, and the ranks of the other host report which rank. Needs root.
#
# Usage: two_networks.sh KOLORUN DEPARTURE_PROGRAM DIRECTORY TESTS...
set -uo pipefail
kolorun=$1
departure=$2
work=$3
shift 3
# shellcheck source=tests/rendezvous/namespaces.sh
source "$(dirname "$0")/../rendezvous/namespaces.sh"
rm -rf "$work"
mkdir -p "$work"
cd "$work" || exit 1
(umask 077 && head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' >secret)

# on_hosts PROGRAM [ARGUMENTS...]: the status of the first host
on_hosts() {
  local job=(timeout 100 "$kolorun" -np 4 --rendezvous 10.213.78.1:4711 --slots 2 --secret-file secret
    --start-timeout 60 "$@")
  "${on_second[@]}" "${job[@]}" >second.log 2>&1 </dev/null &
  local other=$! status=0
  "${on_first[@]}" "${job[@]}" >first.log 2>&1 </dev/null || status=$?
  wait "$other"
  return $status
}

fail() {
  cat first.log second.log
  echo "two_networks: $*" >&2
  exit 1
}

for test in "$@"; do on_hosts "$test" || fail "$test failed"; done
export KOLO_CONTROL_INTERFACE=10.213.78.0/24
for test in "$@"; do on_hosts "$test" || fail "$test failed on one network"; done
on_hosts "$departure" killed 1 && fail "a lost rank is no failure"
for rank in 2 3; do
  grep -qE "rank $rank misses rank 1 after" second.log || fail "rank $rank says nothing"
done
