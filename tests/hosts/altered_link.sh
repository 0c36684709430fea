#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC1091,SC2034,SC2154
# Starts jobs of kolorun on two hosts, between which somebody does what he can: he reads packets and
# flips a bit of the content of one TCP packet in N; or all connections go through him, and he
# repeats, reorders, omits, reflects or cuts what passes, or says again what another has said. A job
# must end with the right results or with an error, and in time; if it is encrypted, no result may be
# wrong, and neither its secret nor its data may be seen. Needs root.
#
# Usage: altered_link.sh DIRECTORY_OF_PROGRAMS [JOBS]
#   JOBS  jobs of each kind (20)
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
programs=$(cd "$1" && pwd)
jobs=${2:-20}
ranks=1 delay=100 mtu=9000 host_count=2
source "$here/emulated_hosts.sh"

fail() {
  printf 'altered_link.sh: %s\n' "$*" >&2
  [[ ! -e $scratch/log ]] || tail -50 "$scratch/log" >&2
  exit 1
}

secret=$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n')

job() { # NETWORK ROUNDS
  local host pids=()
  for ((host = 1; host <= host_count; ++host)); do
    "$scratch/agent" "$subnet.$host" \
      "exec timeout 120 '$programs/kolorun' -np $host_count --slots 1 --rendezvous $subnet.1:4711 \
        --secret-file '$scratch/secret' --start-timeout 20 -x KOLO_NETWORK=$1 -x KOLO_PEER_TIMEOUT=5 \
        -x KOLO_FLIGHT_RECORDER_DIR=off '$programs/altered_program' $2" &
    pids+=($!)
  done
  local pid status worst=0
  for pid in "${pids[@]}"; do
    status=0
    wait "$pid" || status=$?
    case $status in
      0) ;;
      124 | 137) worst=124 ;;
      3) ((worst == 124)) || worst=3 ;;
      *) ((worst != 0)) || worst=$status ;;
    esac
  done
  return "$worst"
}

# True if the recording contains the bytes on standard input.
recording_has() {
  python3 -c 'import sys; sys.exit(sys.stdin.buffer.read() not in open(sys.argv[1], "rb").read())' \
    "$scratch/recording"
}

secret_was_sent() {
  python3 -c 'import sys; sys.stdout.buffer.write(bytes.fromhex(sys.argv[1]))' "$secret" | recording_has ||
    printf %s "$secret" | recording_has
}

# The hosts are joined by a third one, whose relay gets all connections.
relay=kolo-relay-$$ relay_pid=
connect_by_relay() { # DEED SEED
  local host number=1 ready
  ip netns add "$relay"
  for host in "${hosts[@]}"; do
    ip link add wire netns "$host" type veth peer name "wire$number" netns "$relay"
    ip -n "$relay" address add "$subnet.$((250 + number))/32" dev "wire$number"
    ip -n "$relay" link set "wire$number" mtu "$mtu" up
    ip -n "$relay" route add "$subnet.$number/32" dev "wire$number"
    ip netns exec "$relay" sh -c "echo 1 >/proc/sys/net/ipv4/conf/wire$number/proxy_arp"
    number=$((number + 1))
  done
  ip netns exec "$relay" sh -c 'echo 1 >/proc/sys/net/ipv4/ip_forward'
  ip netns exec "$relay" nft -f - <<'END'
table ip relay {
  chain arriving {
    type nat hook prerouting priority -100;
    ip protocol tcp redirect to :9999
  }
}
END
  configure_wire
  rm -f "$scratch/relay"
  mkfifo "$scratch/relay"
  ip netns exec "$relay" "$here/relay.py" 9999 "$1" "$2" "$scratch/recording" >"$scratch/relay" &
  relay_pid=$!
  exec 9<"$scratch/relay"
  read -r ready <&9 && [[ $ready == ready ]]
}

disconnect_relay() {
  [[ -z $relay_pid ]] || kill "$relay_pid" 2>/dev/null || true
  [[ -z $relay_pid ]] || wait "$relay_pid" 2>/dev/null || true
  relay_pid=
  ip -n "$first" link delete wire 2>/dev/null || true
  ip -n "$second" link delete wire 2>/dev/null || true
  ip netns delete "$relay" 2>/dev/null || true
}
trap 'disconnect_relay; remove_hosts' EXIT

# Counts how a job ends.
declare -A ended
count_job() { # NUMBER NETWORK
  local status=0
  job "$2" 40 >"$scratch/log" 2>&1 || status=$?
  case $status in
    0) ended[right]=$((ended[right] + 1)) ;;
    3) ended[wrong]=$((ended[wrong] + 1)) ;;
    124 | 137) fail "job $1 over $2 did not end" ;;
    *)
      ! grep -qE 'signal (4|6|7|8|11) has ended it' "$scratch/log" || fail "a process of job $1 crashed"
      ended[error]=$((ended[error] + 1))
      grep -q . "$scratch/log" || fail "job $1 over $2 failed without a word"
      ;;
  esac
}

report() { # NETWORK WITH
  printf -- '== %s jobs over %s with %s: %s right, %s failed, %s wrong\n' \
    "$jobs" "$1" "$2" "${ended[right]}" "${ended[error]}" "${ended[wrong]}"
  [[ $1 == sockets || ${ended[wrong]} == 0 ]] || fail "an encrypted job had a wrong result"
}

make_hosts
(umask 077 && echo "$secret" >"$scratch/secret")
for network in sockets encrypted; do
  printf -- '== what can be read, over %s\n' "$network"
  emulator_options=(--record "$scratch/recording")
  connect 1000 0
  job "$network" 3 >"$scratch/log" 2>&1 || fail "the job failed without an alteration"
  disconnect
  [[ -s $scratch/recording ]] || fail "nothing was recorded"
  ! secret_was_sent || fail "the secret was sent"
  seen=no
  ! printf 'nobody on the network may read; ' | recording_has || seen=yes
  printf 'data was seen: %s\n' "$seen"
  [[ $network == sockets || $seen == no ]] || fail "data can be read"
  [[ $network == encrypted || $seen == yes ]] || fail "this test cannot see unencrypted data"
done

for network in encrypted sockets; do
  ended=([right]=0 [error]=0 [wrong]=0)
  for ((number = 1; number <= jobs; ++number)); do
    # From once in 20 packets, which prevents the start, to once in 200000.
    emulator_options=(--alter $((20 * 10 ** (number % 5))) --seed "$number")
    connect 1000 0
    count_job "$number" "$network"
    disconnect
  done
  report "$network" "altered packets"
  ((ended[right] > 0 && ended[error] > 0)) || fail "the alterations hit all jobs or none"
done

for network in encrypted sockets; do
  ended=([right]=0 [error]=0 [wrong]=0)
  connect_by_relay nothing 0
  count_job 0 "$network"
  disconnect_relay
  ((ended[right] == 1)) || fail "a job through a relay that does nothing failed"
  ended=([right]=0 [error]=0 [wrong]=0)
  deeds=(repeat reorder omit reflect cut replay) done=0
  for ((number = 1; number <= jobs; ++number)); do
    deed=${deeds[number % ${#deeds[@]}]}
    connect_by_relay "$deed" "$number"
    before=${ended[wrong]}
    count_job "$number" "$network"
    disconnect_relay
    read -r -t 1 said <&9 && done=$((done + 1)) || said="$deed: never"
    ((ended[wrong] == before)) || printf 'wrong: job %s, %s\n' "$number" "$said"
    exec 9<&-
    ! secret_was_sent || fail "the secret was sent"
  done
  report "$network" "a relay that does harm ($done deeds were done)"
  ((done > jobs / 2)) || fail "the relay seldom came to its deed"
done
