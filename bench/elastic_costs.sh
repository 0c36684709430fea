#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC1091,SC2034,SC2154
# The cost of starting without MPI, of sockets between hosts, and of elastic commits, compared
# with MPI or with a copy. Prints the rows of elastic_costs.csv: medians of alternating rounds.
# Needs root for the hosts, which are network namespaces with one rank each.
# Usage: elastic_costs.sh PROGRAMS [ROUNDS]
#   PROGRAMS  directory of kolorun, quickstart, kolo-perf, bench-idle, bench-commit, link_emulator
#   ROUNDS    number of rounds (3); each measures starts three times
set -euo pipefail
programs=$(cd "$1" && pwd)
rounds=${2:-3}
ranks=1 delay=100 mtu=9000
source "$(dirname "$0")/../tests/hosts/emulated_hosts.sh"

# add FILE_OF_VALUES COMMAND...: the wall time of a command, in milliseconds.
add_time() {
  local file=$1 begin=$EPOCHREALTIME end
  shift
  "$@" >/dev/null
  end=$EPOCHREALTIME
  awk -v begin="$begin" -v end="$end" 'BEGIN { printf "%.1f\n", 1000 * (end - begin) }' >>"$file"
}

median() { # FILE_OF_VALUES
  sort -g "$1" | awk '{ value[NR] = $1 } END {
    if (NR == 0) exit 1
    middle = int((NR + 1) / 2)
    print NR % 2 ? value[middle] : (value[middle] + value[middle + 1]) / 2 }'
}

# row WHAT PLACE UNIT KOLO PEER_NAME PEER: both are files of values.
row() {
  local kolo peer
  kolo=$(median "$4")
  peer=$(median "$6")
  awk -v what="$1" -v place="$2" -v unit="$3" -v kolo="$kolo" -v name="$5" -v peer="$peer" 'BEGIN {
    printf "%s,%s,%s,%.4g,%s,%.4g,%.2f\n", what, place, unit, kolo, name, peer, kolo / peer }'
}

values=$scratch/values
mkdir "$values"
echo "what,place,unit,kolo,peer,peer_value,ratio"

# ---- starting ----
for np in 2 4; do
  for ((i = 0; i < 3 * rounds; ++i)); do
    add_time "$values/kolorun.$np" "$programs/kolorun" -np "$np" "$programs/quickstart"
    add_time "$values/mpirun.$np" mpirun -np "$np" "$programs/quickstart"
  done
  row "a job that starts and ends" "one host with $np ranks" ms "$values/kolorun.$np" mpirun "$values/mpirun.$np"
done

# ---- commits ----
for np in 2 4; do
  for ((i = 0; i < rounds; ++i)); do
    "$programs/kolorun" -np "$np" --min-np "$np" "$programs/bench-commit" |
      while IFS=, read -r bytes commit copy; do
        echo "$commit" >>"$values/commit.$np.$bytes"
        echo "$copy" >>"$values/copy.$np.$bytes"
      done
  done
  for size in "1024 1 KiB" "1048576 1 MiB" "104857600 100 MiB"; do
    bytes=${size%% *}
    row "a commit of ${size#* }" "one host with $np ranks" ms "$values/commit.$np.$bytes" \
      "a copy" "$values/copy.$np.$bytes"
  done
done

# ---- between hosts ----
# allreduce LINK: Kolo over sockets and over MPI, and MPI itself.
allreduce() {
  local i network size bytes
  for ((i = 0; i < rounds; ++i)); do
    for network in sockets mpi; do
      on_hosts --timeout 300 -x KOLO_NETWORK="$network" -x KOLO_CONTROL_INTERFACE=wire \
        "$programs/kolo-perf" --operation allreduce --sizes 8,100M --warmup 2 --iterations 11 --csv |
        awk -F , -v network="$network" -v values="$values/$1" '
          NR == 1 { for (i = 1; i <= NF; ++i) column[$i] = i; next }
          { print $column["kolo_us"] / 1000 >> values "." network "." $column["bytes"]
            print $column["mpi_us"] / 1000 >> values ".itself." $column["bytes"] }'
    done
  done
  for size in "8 8 bytes" "104857600 100 MiB"; do
    bytes=${size%% *}
    row "allreduce of ${size#* } over sockets" "$2" ms "$values/$1.sockets.$bytes" "MPI itself" \
      "$values/$1.itself.$bytes"
    row "allreduce of ${size#* } over sockets" "$2" ms "$values/$1.sockets.$bytes" "Kolo over MPI" \
      "$values/$1.mpi.$bytes"
  done
}

make_hosts
connect 1000 0
allreduce gigabit "two hosts at 1 Gbit/s"
for network in sockets mpi; do
  for what in idle in-allreduce; do
    for ((i = 0; i < rounds; ++i)); do
      on_hosts -x KOLO_NETWORK="$network" -x KOLO_CONTROL_INTERFACE=wire \
        "$programs/bench-idle" 20 ${what/idle/} | awk '/^rank 1/ { print $3 }' >>"$values/$what.$network"
    done
  done
done
for what in idle in-allreduce; do
  where=${what/idle/without operations}
  row "a rank that waits (${where/in-/in an })" "two hosts" "% of a core" "$values/$what.sockets" \
    "Kolo over MPI" "$values/$what.mpi"
done
disconnect
connect_directly
allreduce veth "two hosts without a limit"
