#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC1091,SC2034
# Compares two builds of Kolo, in alternating runs on one machine: the time of a job that only starts
# and ends, and allreduces of two ranks that take each other for hosts, over the loopback interface.
# Prints the rows of connections_against_revision.csv: the median of each build's runs in
# microseconds, and of the ratio of the second build's time to the first's in a round, with its
# minimum and maximum.
#
# Usage: connections_against_revision.sh OLD NEW [ROUNDS] [loopback|namespaces]
#   OLD, NEW  the directories of the programs
#   KOLO_OLD_NETWORK  the network of the first build between hosts (sockets)
#   ROUNDS    number of rounds (7)
#   the last  only these rows
set -euo pipefail
old=$1 new=$2 rounds=${3:-7} where=${4:-}
declare -A network=([$old]=${KOLO_OLD_NETWORK:-sockets} [$new]=sockets)
export KOLO_FLIGHT_RECORDER_DIR=off
source "$(dirname "$0")/compare_builds.sh"

start() { # PROGRAMS RANKS
  local begin=$EPOCHREALTIME
  "$1/kolorun" -np "$2" "$1/bench-start-up" kolo >/dev/null
  awk -v begin="$begin" -v end="$EPOCHREALTIME" 'BEGIN { printf "%.0f\n", 1e6 * (end - begin) }'
}

between() { # PROGRAMS SIZE
  KOLO_TEST_RANKS_PER_HOST=1 KOLO_NETWORK=${network[$1]} mpirun -np 2 "$1/kolo-perf" --sizes "$2" \
    --iterations 31 --csv | column kolo_us
}

between_namespaces() { # PROGRAMS SIZE
  on_hosts -x KOLO_NETWORK="${network[$1]}" "$1/kolo-perf" --sizes "$2" --iterations 31 --csv |
    column kolo_us
}

echo "what,rounds,old_us,new_us,ratio,min,max"
if [[ $where != namespaces ]]; then
  for ranks in 2 4 64; do compare start "$ranks" "start of $ranks ranks on one host"; done
  compare between 8 "allreduce of 8 B between hosts"
  compare between 64K "allreduce of 64 KiB between hosts"
  compare between 64M "allreduce of 64 MiB between hosts"
fi
if [[ $where != loopback && $EUID == 0 ]]; then
  programs=$new ranks=1 delay=0 mtu=9000
  source "$(dirname "$0")/../tests/hosts/emulated_hosts.sh"
  make_hosts
  connect_directly
  compare between_namespaces 8 "allreduce of 8 B between namespaces"
  compare between_namespaces 64K "allreduce of 64 KiB between namespaces"
  compare between_namespaces 64M "allreduce of 64 MiB between namespaces"
fi
