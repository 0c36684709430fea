#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Two kolorun, one of them in a PID namespace of its own: their ranks cannot share memory, so all of
# them refuse to start a session without MPI, and nobody waits.
#
# Usage: two_machines.sh KOLORUN PROGRAM DIRECTORY
set -uo pipefail
kolorun=$1
program=$2
work=$3
unshare --pid --fork true 2>/dev/null || { echo "no PID namespaces here"; exit 77; }
rm -rf "$work"
mkdir -p "$work"
cd "$work" || exit 1

head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' >secret
port=$((20000 + RANDOM % 10000))
job=(timeout 60 "$kolorun" -np 2 --rendezvous "127.0.0.1:$port" --slots 1 --secret-file secret
  --start-timeout 30 "$program")
"${job[@]}" >first 2>&1 &
unshare --pid --fork "${job[@]}" >second 2>&1
wait
cat first second
refusals=$(cat first second |
  grep -cE '^refused: .*rank 1: on host .*, rank 0 on host .*start it with mpirun')
if ((refusals != 2)); then
  echo "two_machines: $refusals of 2 ranks have refused" >&2
  exit 1
fi
