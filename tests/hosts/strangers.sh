#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC1091,SC2154
# A job on two hosts, and starts of others, while strangers flood all ports that listen: as another
# user of each host, and from each host to the other. The job checks its results all the time. Every
# other start is made while the strangers flood an unrelated port instead, for comparison.
# Needs root.
#
# Usage: strangers.sh DIRECTORY_OF_PROGRAMS [MINUTES] [RATE]
#   RATE  connections per second of each of the four strangers (500)
set -euo pipefail
programs=$(cd "$1" && pwd)
minutes=${2:-60} rate=${3:-500}
source "$(dirname "$0")/../rendezvous/namespaces.sh"
scratch=$(mktemp -d)
trap 'remove_hosts; rm -rf "$scratch"' EXIT
chmod 711 "$scratch"
cp "$programs/stranger_program" "$scratch/"  # which another user may not read elsewhere
chmod 755 "$scratch/stranger_program"
unrelated=19009 # a port

fail() {
  printf 'strangers.sh: %s\n' "$*" >&2
  tail -n 30 "$scratch"/*.log >&2
  exit 1
}

# job NAME PORT ROUNDS: an agent on each host. Sets `agents`.
job() {
  agents=()
  local host
  for host in first second; do
    local -n on="on_$host"
    "${on[@]}" env -u KOLO_NETWORK KOLO_FLIGHT_RECORDER_DIR=off "${network[@]}" "$programs/kolorun" \
      -np 2 --slots 1 --rendezvous "10.213.78.1:$2" --secret-file "$scratch/secret" \
      --start-timeout 60 "$programs/altered_program" "$3" >"$scratch/$1.$host.log" 2>&1 &
    agents+=($!)
  done
}

# flood only|except: all strangers.
flood() {
  strangers=()
  local host other
  for host in first second; do
    local -n on="on_$host"
    "${on[@]}" "$scratch/stranger_program" flood /proc/net/tcp - "$rate" "$1" "$unrelated" \
      2>>"$scratch/strangers.log" &
    strangers+=($!)
  done
  other=$(ip netns pids "$first" | head -1)
  "${on_second[@]}" "$scratch/stranger_program" flood "/proc/$other/net/tcp" 10.213.78.1 "$rate" \
    "$1" "$unrelated" 2>>"$scratch/strangers.log" &
  strangers+=($!)
  other=$(ip netns pids "$second" | head -1)
  "${on_first[@]}" "$scratch/stranger_program" flood "/proc/$other/net/tcp" 10.213.78.2 "$rate" \
    "$1" "$unrelated" 2>>"$scratch/strangers.log" &
  strangers+=($!)
}

end_flood() {
  kill -TERM "${strangers[@]}" 2>/dev/null || true
  wait "${strangers[@]}" 2>/dev/null || true
}

# Descriptors and KiB of memory of the long job's ranks, the largest of each.
usage() {
  local pid most=0 memory=0 count size
  for pid in $(pgrep -f "altered_program 1000000000"); do
    [[ $(cat "/proc/$pid/comm" 2>/dev/null) == altered_program ]] || continue
    count=$(find "/proc/$pid/fd" -mindepth 1 2>/dev/null | wc -l)
    size=$(awk '/^VmRSS/ {print $2}' "/proc/$pid/status" 2>/dev/null)
    ((count <= most)) || most=$count
    ((${size:-0} <= memory)) || memory=$size
  done
  echo "$most $memory"
}

(umask 077 && od -An -N32 -tx1 /dev/urandom | tr -d ' \n' >"$scratch/secret")
for host in first second; do
  declare -n on="on_$host"
  "${on[@]}" "$scratch/stranger_program" listen "$unrelated" &
done
network=(KOLO_NETWORK=sockets)
job long 4711 1000000000
long=("${agents[@]}")
sleep 5
before=$(usage)
end=$((SECONDS + 60 * minutes)) number=0
while ((SECONDS < end)); do
  for target in except only; do
    flood "$target"
    sleep 1 # the ports of the long job, and of the unrelated listener, are busy by then
    network=(KOLO_NETWORK=sockets)
    ((number % 4 < 2)) || network=(KOLO_NETWORK=encrypted)
    begin=$(date +%s%N)
    job start $((5000 + number % 1000)) 3
    for agent in "${agents[@]}"; do
      wait "$agent" || fail "start $number, flooding $target: status $?"
    done
    echo $((($(date +%s%N) - begin) / 1000000)) >>"$scratch/$target"
    end_flood
    for agent in "${long[@]}"; do
      kill -0 "$agent" 2>/dev/null || fail "the job that ran beside start $number has ended"
    done
    number=$((number + 1))
  done
done
after=$(usage)
{ kill -KILL "${long[@]}" && wait "${long[@]}"; } 2>/dev/null || true
median() { sort -n "$1" | awk '{v[NR] = $1} END {print v[int((NR + 1) / 2)]}'; }
visits=$(awk '{n += $2} END {print n}' "$scratch/strangers.log")
printf 'strangers.sh: %d starts, 0 failures; %s visits of strangers\n' "$number" "$visits"
printf 'median of a start: %s ms while they flooded its ports, %s ms while they flooded another one\n' \
  "$(median "$scratch/except")" "$(median "$scratch/only")"
printf 'descriptors and KiB of memory of a rank of the job beside: %s at the beginning, %s at the end\n' \
  "$before" "$after"
