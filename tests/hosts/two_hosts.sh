#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC1091,SC2010,SC2034,SC2154
# Joins hosts, emulated by network namespaces, with a network that has a delay, a rate and losses.
# Runs random programs between the hosts, then measures an allreduce and the link alone. Then
# selects between interfaces, one of which leads nowhere, and cuts a host off. Needs root.
#
# Usage: two_hosts.sh DIRECTORY_OF_PROGRAMS [SECONDS_OF_RANDOM_PROGRAMS]
#   KOLO_HOSTS_COUNT   number of hosts (2)
#   KOLO_HOSTS_MBIT    bandwidth of the link in Mbit/s, in each direction (1000)
#   KOLO_HOSTS_DELAY   delay in each direction, in microseconds (1000)
#   KOLO_HOSTS_LOSSES  lost packets in percent, one run per value ("0 1")
#   KOLO_HOSTS_MTU     bytes per packet (9000)
#   KOLO_HOSTS_RANKS   ranks per host (2)
#   KOLO_HOSTS_NETWORKS
#                      values of KOLO_NETWORK, one run per value ("mpi sockets")
#   KOLO_HOSTS_TIMEOUT seconds until the host that is cut off counts as lost (2)
#   KOLO_HOSTS_MEGABYTES, KOLO_HOSTS_ROUNDS
#                      of the allreduce that is measured (100, 5)
set -euo pipefail
programs=$(cd "$1" && pwd)
seconds=${2:-20}
mbit=${KOLO_HOSTS_MBIT:-1000}
delay=${KOLO_HOSTS_DELAY:-1000}
losses=${KOLO_HOSTS_LOSSES:-0 1}
mtu=${KOLO_HOSTS_MTU:-9000}
host_count=${KOLO_HOSTS_COUNT:-2}
ranks=${KOLO_HOSTS_RANKS:-2}
networks=${KOLO_HOSTS_NETWORKS:-mpi sockets}
timeout=${KOLO_HOSTS_TIMEOUT:-2}

dead_subnet=10.213.66
source "$(dirname "$0")/emulated_hosts.sh"

# Adds an interface to both hosts that is up but leads nowhere.
add_dead_ends() {
  local address=1 host
  for host in "${hosts[@]}"; do
    ip -n "$host" link add dead type veth peer name deader
    ip -n "$host" address add "$dead_subnet.$address/24" dev dead
    ip -n "$host" link set dead up
    ip -n "$host" link set deader up
    address=$((address + 1))
  done
}

fail() {
  printf 'two_hosts.sh: %s\n' "$*" >&2
  exit 1
}

# Runs a random program for a moment, with the interface in $1; the log must match $2.
with_interface() {
  printf '\n== control messages by %s\n' "$1"
  on_hosts --timeout 300 -x KOLO_CONTROL_INTERFACE="$1" -x KOLO_LOG_LEVEL=info \
    "$programs/differential_program" --seconds 3 >"$scratch/log" 2>&1 ||
    { cat "$scratch/log"; fail "the program failed"; }
  grep -E "$2" "$scratch/log" | head -1 || { cat "$scratch/log"; fail "no line matches: $2"; }
}

# All ranks must learn of it within the timeout plus half a second.
cut_off() {
  printf '\n== a host is cut off in the middle, with a timeout of %s s, over %s\n' "$timeout" "$1"
  local rank cut late=0 status=0
  rm -f "$scratch"/ready.* "$scratch"/lost.*
  on_hosts --timeout 300 -x KOLO_NETWORK="$1" -x KOLO_PEER_TIMEOUT="$timeout" \
    "$programs/loss_program" "$scratch" >"$scratch/log" 2>&1 &
  local job=$!
  until (($(ls "$scratch" | grep -c '^ready') == host_count * ranks)); do
    kill -0 "$job" 2>/dev/null || { cat "$scratch/log"; fail "it ended too soon"; }
    sleep 0.1
  done
  cut=$(monotonic)
  disconnect
  local until=$((SECONDS + timeout + 20))
  while (($(ls "$scratch" | grep -c '^lost') < host_count * ranks && SECONDS < until)); do sleep 0.1; done
  for ((rank = 0; rank < host_count * ranks; ++rank)); do
    [[ -s $scratch/lost.$rank ]] || { cat "$scratch/log"; fail "rank $rank did not notice"; }
    awk -v rank="$rank" -v cut="$cut" -v most="$timeout" '{
      after = $1 - cut; $1 = ""
      printf "rank %d learned of it after %.2f s:%s\n", rank, after, $0
      exit after > most + 0.5 }' "$scratch/lost.$rank" || late=1
  done
  ((late == 0)) || fail "too late"
  until=$((SECONDS + 10))
  while ranks_live && ((SECONDS < until)); do sleep 0.1; done
  ! ranks_live || fail "ranks are left that do not end"
  awk -v cut="$cut" -v now="$(monotonic)" \
    'BEGIN { printf "all ranks have ended %.1f s after the cut\n", now - cut }'
  # mpirun itself waits for its helper on the lost host.
  kill "$job" 2>/dev/null || true
  wait "$job" || status=$?
  ((status != 0)) || fail "the job ended as if nothing had happened"
}

ranks_live() {
  local host pid
  for host in "${hosts[@]}"; do
    for pid in $(ip netns pids "$host"); do
      [[ $(cat "/proc/$pid/comm" 2>/dev/null) != loss_program ]] || return 0
    done
  done
  return 1
}

# The time of std::chrono::steady_clock, in seconds.
monotonic() { cut -d " " -f 1 /proc/uptime; }

make_hosts
for loss in $losses; do
  connect "$mbit" "$loss"
  printf '\n== %s Mbit/s, %s us each way, %s %% of the packets lost\n' "$mbit" "$delay" "$loss"
  for network in $networks; do
    printf -- '-- over %s\n' "$network"
    ((seconds == 0)) ||
      on_hosts --timeout 300 -x KOLO_NETWORK="$network" "$programs/differential_program" --seconds "$seconds"
    on_hosts --timeout 300 -x KOLO_NETWORK="$network" "$programs/link_program" \
      --megabytes "${KOLO_HOSTS_MEGABYTES:-100}" --rounds "${KOLO_HOSTS_ROUNDS:-5}"
  done
  disconnect
done

connect "$mbit" 0
add_dead_ends
with_interface wire 'sockets between hosts'
with_interface dead 'no sockets between hosts.*cannot reach rank 0'
with_interface dead,wire 'sockets between hosts'
for network in $networks; do
  cut_off "$network"
  disconnect
  connect "$mbit" 0
done
