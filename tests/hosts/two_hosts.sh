#!/usr/bin/env bash
# Two hosts made of network namespaces, joined by a link with a delay, a rate and losses: random
# programs between them, then how long an allreduce takes and how long the link alone. Needs root.
#
# Usage: two_hosts.sh DIRECTORY_OF_PROGRAMS [SECONDS_OF_RANDOM_PROGRAMS]
#   KOLO_HOSTS_MBIT    of the link, per second, in each direction (1000)
#   KOLO_HOSTS_DELAY   of each direction, in microseconds (1000)
#   KOLO_HOSTS_LOSSES  in percent of the packets, one after the other ("0 1")
#   KOLO_HOSTS_MTU     bytes of a packet (9000)
#   KOLO_HOSTS_RANKS   on each host (2)
#   KOLO_HOSTS_MEGABYTES, KOLO_HOSTS_ROUNDS
#                      of the allreduce that is measured (100, 5)
set -euo pipefail
programs=$(cd "$1" && pwd)
seconds=${2:-20}
mbit=${KOLO_HOSTS_MBIT:-1000}
delay=${KOLO_HOSTS_DELAY:-1000}
losses=${KOLO_HOSTS_LOSSES:-0 1}
mtu=${KOLO_HOSTS_MTU:-9000}
ranks=${KOLO_HOSTS_RANKS:-2}

first=kolo-a-$$ second=kolo-b-$$
subnet=10.213.77
scratch=$(mktemp -d)
emulator=

disconnect() {
  [[ -z $emulator ]] || kill "$emulator" 2>/dev/null || true
  [[ -z $emulator ]] || wait "$emulator" 2>/dev/null || true
  emulator=
}

remove_hosts() {
  disconnect
  local host pid
  for host in "$first" "$second"; do
    for pid in $(ip netns pids "$host" 2>/dev/null); do kill "$pid" 2>/dev/null || true; done
    ip netns delete "$host" 2>/dev/null || true
  done
  rm -rf "$scratch"
}
trap remove_hosts EXIT

make_hosts() {
  local host
  for host in "$first" "$second"; do
    ip netns add "$host"
    ip -n "$host" link set lo up
  done
}

# The link must not wait for the ranks, with which it shares the cores: it goes first.
connect() {
  local ready address=1 host
  mkfifo "$scratch/ready.$1"
  chrt --fifo 1 "$programs/link_emulator" "$first" "$second" "$mbit" "$delay" "$1" \
    >"$scratch/ready.$1" &
  emulator=$!
  read -r ready <"$scratch/ready.$1" && [[ $ready == ready ]]
  for host in "$first" "$second"; do
    ip -n "$host" link set wire mtu "$mtu" txqueuelen 10000 up
    ip -n "$host" address add "$subnet.$address/24" dev wire
    address=$((address + 1))
  done
}

# Stands in for ssh: the address is the first argument, a command for a shell the rest.
write_agent() {
  cat >"$scratch/agent" <<END
#!/bin/sh
shift
exec ip netns exec $second unshare --uts sh -c 'hostname kolo-b; eval "\$*"' sh "\$@"
END
  chmod +x "$scratch/agent"
}

on_both() {
  ip netns exec "$first" mpirun -np $((2 * ranks)) -H "$subnet.1:$ranks,$subnet.2:$ranks" \
    --timeout 300 --mca plm_rsh_agent "$scratch/agent" \
    --mca oob_tcp_if_include "$subnet.0/24" --mca btl_tcp_if_include "$subnet.0/24" \
    --mca btl tcp,self,vader "$@"
}

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMP_NUM_THREADS=1
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1
export OMPI_MCA_hwloc_base_binding_policy=none

make_hosts
write_agent
for loss in $losses; do
  connect "$loss"
  printf '\n== %s Mbit/s, %s us each way, %s %% of the packets lost\n' "$mbit" "$delay" "$loss"
  ((seconds == 0)) || on_both "$programs/differential_program" --seconds "$seconds"
  on_both "$programs/link_program" --megabytes "${KOLO_HOSTS_MEGABYTES:-100}" \
    --rounds "${KOLO_HOSTS_ROUNDS:-5}"
  disconnect
done
