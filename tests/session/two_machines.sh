#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Two kolorun, one of them in a PID namespace of its own, so that their ranks cannot share memory
# and sockets carry their data. If sockets are not allowed, all ranks refuse to start, and no
# rank hangs. Ranks that have each their own /tmp do not share memory either; under mpirun, whose
# hosts they are, this is a warning.
#
# Usage: two_machines.sh KOLORUN PROGRAM DIRECTORY [MPIRUN]
set -uo pipefail
kolorun=$1
program=$2
work=$3
mpirun=${4:-}
unshare --pid --fork true 2>/dev/null || { echo "no PID namespaces here"; exit 77; }
rm -rf "$work"
mkdir -p "$work"
cd "$work" || exit 1
(umask 077 && head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' >secret)

apart=(unshare --pid --fork)
own_tmp=(unshare --mount sh -c 'mount -t tmpfs none /tmp && exec "$@"' sh)

# run VARIABLE=VALUE...: of the environment
run() {
  local port=$((27200 + RANDOM % 5000))
  local job=(timeout 60 env "$@" "$kolorun" -np 2 --rendezvous "127.0.0.1:$port" --slots 1
    --secret-file secret --start-timeout 30 "$program")
  "${job[@]}" >first 2>&1 &
  "${apart[@]}" "${job[@]}" >second 2>&1
  wait
  cat first second
}

# expect NUMBER PATTERN: so many lines match
expect() {
  local found
  found=$(cat first second | grep -cE "$2")
  ((found == $1)) || { echo "two_machines: $found of $1 lines match $2" >&2; exit 1; }
}

run KOLO_NETWORK=auto
expect 4 '^rank [01] of 2, sum 2$'
run KOLO_NETWORK=mpi
expect 2 '^refused: .*ranks 0-1: network is mpi on rank 0, but .*(start it with mpirun|is without MPI)'

# False also if the programs are in /tmp.
"${own_tmp[@]}" test -x "$program" 2>/dev/null || { echo "no /tmp of its own here"; exit 0; }
apart=("${own_tmp[@]}")
run KOLO_LOG_LEVEL=info
expect 4 '^rank [01] of 2, sum 2$'
expect 4 'sockets between hosts carry control messages$'
[[ -n $mpirun ]] || exit 0
export KOLO_LOG_LEVEL=info
OMPI_MCA_orte_tmpdir_base=$work timeout 60 "$mpirun" -np 1 "$program" : -np 1 "${own_tmp[@]}" "$program" >first 2>second
cat first second
expect 4 '^rank [01] of 2, sum 2$'
expect 2 'no shared memory on this host'
