#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A run that is killed in the middle of an epoch and resumed ends with the same network as an
# uninterrupted run.
# Usage: killed.sh EXPECT PROGRAM DIRECTORY MPIRUN...
set -euo pipefail
source "$(dirname "$0")/../../support/fresh_directory.sh"
program=$2 directory=$3
shift 3
train=("$@" "$program" --stand-in-size 400 --batch-size 8 --epochs 2 --save-every 5)

fail() {
  echo "$*" >&2
  exit 1
}

fresh_directory "$directory"
"${train[@]}" --save "$directory/whole"

"${train[@]}" --save "$directory/killed" &
mpirun=$!
until compgen -G "$directory/killed/checkpoint-??????????" >/dev/null; do
  kill -0 "$mpirun" 2>/dev/null || fail "the run ended before its first checkpoint"
  sleep 0.02
done
read -r -a ranks <"/proc/$mpirun/task/$mpirun/children" || true # the line has no end
kill -KILL "${ranks[@]}"
if wait "$mpirun"; then fail "the run was not killed"; fi
[[ ! -e $directory/killed/model.pt ]] || fail "the run came to its end"
ls "$directory/killed"

"${train[@]}" --resume "$directory/killed" --save "$directory/resumed"
cmp "$directory/whole/model.pt" "$directory/resumed/model.pt"
