#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs a program on the hosts of a hostfile, with as many ranks on each host as it has slots.
#
# Usage: hosts.sh HOSTFILE PROGRAM [ARGUMENT...]
#   THREADS      cores of each rank, and what OMP_NUM_THREADS becomes (1)
#   INTERFACE    the network between the hosts, by name or as 10.1.0.0/16; by default MPI tries all
#   SSH_ARGUMENTS
#                for ssh, such as "-p 2222 -i key"
#
# PROGRAM must be at the same path on all hosts, and ssh to each must work without a password.
# Variables that begin with KOLO_ are passed on.
set -euo pipefail
if (($# < 2)); then
  sed -n '2,/^set -/{/^set -/d;s/^# \{0,1\}//;p}' "$0" >&2
  exit 2
fi
hostfile=$1
shift
threads=${THREADS:-1}

arguments=(--hostfile "$hostfile" --map-by "slot:PE=$threads" --bind-to core --tag-output)
if [[ -n ${INTERFACE:-} ]]; then
  # oob_tcp is for mpirun's own messages, btl_tcp for the program's.
  arguments+=(--mca oob_tcp_if_include "$INTERFACE" --mca btl_tcp_if_include "$INTERFACE")
fi
if [[ -n ${SSH_ARGUMENTS:-} ]]; then
  arguments+=(--mca plm_rsh_args "$SSH_ARGUMENTS")
fi
export OMP_NUM_THREADS=$threads
arguments+=(-x OMP_NUM_THREADS)
while IFS= read -r name; do arguments+=(-x "$name"); done < <(compgen -e KOLO_ || true)

exec mpirun "${arguments[@]}" "$@"
