#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A run that stops in the middle of an epoch and is resumed ends with the same checkpoint, byte for
# byte, as an uninterrupted run. Another number of ranks can resume it too.
# Usage: resumed.sh PROGRAM DIRECTORY RANKS MPIRUN
set -euo pipefail
source "$(dirname "$0")/../../support/fresh_directory.sh"
program=$1 directory=$2 ranks=$3 mpirun=$4

train() {
  MPIEXEC_TIMEOUT=60 "$mpirun" -np "$1" "$program" --accumulate 2 --batch-size 4 --steps 14 \
    --log-every 4 --validate-every 5 --sample 0 --text-size 3000 --width 16 --heads 2 \
    --context 16 --compression bf16 "${@:2}"
}
last=checkpoint-0000000014

fresh_directory "$directory"
train "$ranks" --checkpoints "$directory/whole"
train "$ranks" --checkpoints "$directory/parts" --stop-at 6
cp -r "$directory/parts" "$directory/others"
[[ ! -e $directory/parts/$last ]]
train "$ranks" --checkpoints "$directory/parts" | tee "$directory/output"
grep -q "^going on from '$directory/parts/checkpoint-0000000006'" "$directory/output"
# The headers have the key of the save, which differs. Their lengths are in the first 8 bytes.
data() {
  for file in "$1"/*.safetensors; do
    tail -c "+$((9 + $(od -A n -t u8 -N 8 "$file")))" "$file"
  done
}
cmp <(data "$directory/whole/$last") <(data "$directory/parts/$last")

train $((ranks % 2 + 1)) --checkpoints "$directory/others"
[[ -e $directory/others/$last ]]
