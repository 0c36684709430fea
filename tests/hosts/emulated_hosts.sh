# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154
# Functions that create hosts from network namespaces, joined by an emulated network. Needs root.
# Source this file with `set -euo pipefail`, after these variables are set:
#   programs    directory of link_emulator
#   ranks       ranks per host
#   delay       delay in each direction, in microseconds
#   mtu         bytes per packet
#   host_count  number of hosts (2)
#   emulator_options   an array of options of link_emulator, for `connect` (none)
# Afterwards, `scratch` is a directory for files, removed with the hosts at the end.

hosts=() addresses=
subnet=10.213.77
for ((host = 1; host <= ${host_count:=2}; ++host)); do
  hosts+=("kolo-$host-$$")
  addresses+=${addresses:+,}$subnet.$host:$ranks
done
first=${hosts[0]} second=${hosts[1]}
scratch=$(mktemp -d)
emulator=

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMP_NUM_THREADS=1
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1
export OMPI_MCA_hwloc_base_binding_policy=none

disconnect() {
  ip -n "$first" link delete wire 2>/dev/null || true
  [[ -z $emulator ]] || kill "$emulator" 2>/dev/null || true
  [[ -z $emulator ]] || wait "$emulator" 2>/dev/null || true
  emulator=
}

remove_hosts() {
  disconnect
  local host pid
  for host in "${hosts[@]}"; do
    for pid in $(ip netns pids "$host" 2>/dev/null); do kill "$pid" 2>/dev/null || true; done
    ip netns delete "$host" 2>/dev/null || true
  done
  rm -rf "$scratch"
}
trap remove_hosts EXIT

make_hosts() {
  local host
  for host in "${hosts[@]}"; do
    ip netns add "$host"
    ip -n "$host" link set lo up
  done
  write_agent
}

# A replacement for ssh: the first argument is the address, the rest a shell command.
write_agent() {
  cat >"$scratch/agent" <<END
#!/bin/sh
host=kolo-\${1##*.}
shift
exec ip netns exec \$host-$$ unshare --uts sh -c "hostname \$host"'; eval "\$*"' sh "\$@"
END
  chmod +x "$scratch/agent"
}

# Real-time priority: the emulator shares the cores with the ranks and must not wait for them.
connect() { # MBIT LOSS: per second and direction; lost packets in percent
  local ready
  rm -f "$scratch/ready.$1.$2"
  mkfifo "$scratch/ready.$1.$2"
  chrt --fifo 1 "$programs/link_emulator" "${emulator_options[@]+"${emulator_options[@]}"}" "$1" "$delay" "$2" "${hosts[@]}" \
    >"$scratch/ready.$1.$2" &
  emulator=$!
  read -r ready <"$scratch/ready.$1.$2" && [[ $ready == ready ]]
  configure_wire
}

# Two hosts, without a limit.
connect_directly() {
  ip link add wire netns "$first" type veth peer name wire netns "$second"
  configure_wire
}

configure_wire() {
  local address=1 host
  for host in "${hosts[@]}"; do
    ip -n "$host" link set wire mtu "$mtu" txqueuelen 10000 up
    ip -n "$host" address add "$subnet.$address/24" dev wire
    address=$((address + 1))
  done
}

on_hosts() { # MPIRUN OPTIONS PROGRAM...
  ip netns exec "$first" mpirun -np $((host_count * ranks)) -H "$addresses" \
    --mca plm_rsh_agent "$scratch/agent" \
    --mca oob_tcp_if_include "$subnet.0/24" --mca btl_tcp_if_include "$subnet.0/24" \
    --mca btl tcp,self,vader "$@"
}
