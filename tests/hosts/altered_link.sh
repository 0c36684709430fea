#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC1091,SC2034,SC2154
# Starts jobs of kolorun on emulated hosts, between which somebody reads packets, and flips a bit of
# the content of one TCP packet in N. A job must end with the right results or with an error, and in
# time; if it is encrypted, no result may be wrong, and neither its secret nor its data may be seen.
# Needs root.
#
# Usage: altered_link.sh DIRECTORY_OF_PROGRAMS [JOBS]
#   JOBS  jobs of each kind (20)
set -euo pipefail
programs=$(cd "$1" && pwd)
jobs=${2:-20}
ranks=1 delay=100 mtu=9000 host_count=2
source "$(dirname "$0")/emulated_hosts.sh"

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

make_hosts
(umask 077 && echo "$secret" >"$scratch/secret")
for network in sockets encrypted; do
  printf -- '== what can be read, over %s\n' "$network"
  emulator_options=(--record "$scratch/recording")
  connect 1000 0
  job "$network" 3 >"$scratch/log" 2>&1 || fail "the job failed without an alteration"
  disconnect
  [[ -s $scratch/recording ]] || fail "nothing was recorded"
  ! python3 -c 'import sys; sys.stdout.buffer.write(bytes.fromhex(sys.argv[1]))' "$secret" | recording_has ||
    fail "the secret was sent"
  ! printf %s "$secret" | recording_has || fail "the secret was sent as text"
  seen=no
  ! printf 'nobody on the network may read; ' | recording_has || seen=yes
  printf 'data was seen: %s\n' "$seen"
  [[ $network == sockets || $seen == no ]] || fail "data can be read"
  [[ $network == encrypted || $seen == yes ]] || fail "this test cannot see unencrypted data"
done

for network in encrypted sockets; do
  declare -A ended=([right]=0 [error]=0 [wrong]=0)
  for ((number = 1; number <= jobs; ++number)); do
    # From once in 20 packets, which prevents the start, to once in 200000.
    emulator_options=(--alter $((20 * 10 ** (number % 5))) --seed "$number")
    connect 1000 0
    status=0
    job "$network" 40 >"$scratch/log" 2>&1 || status=$?
    disconnect
    case $status in
      0) ended[right]=$((ended[right] + 1)) ;;
      3) ended[wrong]=$((ended[wrong] + 1)) ;;
      124 | 137) fail "job $number over $network did not end" ;;
      *)
        ! grep -qE 'signal (4|6|7|8|11) has ended it' "$scratch/log" || fail "a process of job $number crashed"
        ended[error]=$((ended[error] + 1))
        grep -q . "$scratch/log" || fail "job $number over $network failed without a word"
        ;;
    esac
  done
  printf -- '== %s jobs over %s with altered packets: %s right, %s failed, %s wrong\n' \
    "$jobs" "$network" "${ended[right]}" "${ended[error]}" "${ended[wrong]}"
  ((ended[right] > 0 && ended[error] > 0)) || fail "the alterations hit all jobs or none"
  [[ $network == sockets || ${ended[wrong]} == 0 ]] || fail "an encrypted job had a wrong result"
done
