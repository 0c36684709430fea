#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2016
# Trains the GPT of 100 million parameters under a limit of address space: one rank with the whole model must fail for
# lack of memory, and four ranks with a share each must train.
# Usage: limit.sh PROGRAM MEGABYTES MPIRUN...
#   MEGABYTES  of address space for each process
set -euo pipefail
program=$1 megabytes=$2
shift 2
start=("$@")

# limited RANKS OPTION...
limited() {
  "${start[@]}" -np "$1" bash -c 'ulimit -v "$1"; shift; exec "$@"' limited $((megabytes * 1024)) \
    "$program" --context 32 --steps 3 "${@:2}" 2>&1
}

echo "one rank with the whole model:"
if output=$(limited 1 --sharding none); then
  echo "the whole model fits into $megabytes MB" >&2
  exit 1
fi
grep -o "can't allocate memory: you tried to allocate [0-9]* bytes" <<<"$output"
echo "four ranks with a share each:"
output=$(limited 4 --sharding full)
printf '%s\n' "$output"
grep -q "^step 3: loss " <<<"$output"
