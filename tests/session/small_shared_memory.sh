#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs a command with a /dev/shm of 64 MB, as in many containers, and checks that nothing is left in
# it.
# Usage: small_shared_memory.sh lives|killed COMMAND...    killed: the command must fail
# Exits with 77 if namespaces cannot be created here.
set -u
if [[ ${1-} != --inside ]]; then
  unshare --mount true 2>/dev/null || exit 77
  exec unshare --mount bash "$0" --inside "$@"
fi
how=$2
shift 2
mount -t tmpfs -o size=64m none /dev/shm || exit 77
"$@"
got=$?
left=$(find /dev/shm -mindepth 1)
if [[ -n $left ]]; then
  echo "left in /dev/shm: $left" >&2
  exit 1
fi
# 110: mpirun's own time ran out, so the program hung.
if [[ $how == killed ]]; then ((got != 0 && got != 110)); else ((got == 0)); fi
