#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Sharded runs end with the checkpoint of a replicated run, byte for byte, also when they are resumed with
# another sharding. On another number of ranks, a sharded checkpoint continues as a replicated one does.
# Usage: sharded.sh EXPECT PROGRAM DIRECTORY MPIRUN -np RANKS
set -euo pipefail
source "$(dirname "$0")/../../support/fresh_directory.sh"
program=$2 directory=$3 mpirun=$4 ranks=$6
others=$((ranks % 4 + 1))

# train RANKS CHECKPOINTS OPTION...
passes=2
train() {
  MPIEXEC_TIMEOUT=60 "$mpirun" -np "$1" "$program" --checkpoints "$directory/$2" --accumulate "$passes" \
    --batch-size 4 --steps 14 --log-every 4 --validate-every 5 --sample 0 --text-size 6000 --width 16 \
    --heads 2 --context 16 "${@:3}"
}
# The headers have the key of the save, which differs. Their lengths are in the first 8 bytes.
data() {
  for file in "$1"/*.safetensors; do
    tail -c "+$((9 + $(od -A n -t u8 -N 8 "$file")))" "$file"
  done
}
same_end() {
  cmp <(data "$directory/$1/checkpoint-0000000014") \
    <(data "$directory/$2/checkpoint-0000000014")
}

fresh_directory "$directory"
train "$ranks" whole
train "$ranks" parts --sharding gradients --stop-at 6
cp -r "$directory/parts" "$directory/others"
cp -r "$directory/parts" "$directory/others-sharded"
train "$ranks" parts --sharding state | tee "$directory/output"
grep -q "^going on from '$directory/parts/checkpoint-0000000006'" "$directory/output"
same_end whole parts

train "$ranks" bf16 --compression bf16
train "$ranks" bf16-sharded --compression bf16 --sharding state
same_end bf16 bf16-sharded

train "$others" others
train "$others" others-sharded --sharding gradients
same_end others others-sharded

# Fully sharded runs reduce the gradients of each pass, so the sums of several passes may differ in the last
# digits. With one pass a step, and without clipping, they end with the same bytes, too.
passes=1
train "$ranks" single-parts --sharding gradients --clip 1000
train "$ranks" single-full --sharding full --stop-at 6 --clip 1000
cp -r "$directory/single-full" "$directory/single-others"
train "$ranks" single-full --sharding full --clip 1000
same_end single-parts single-full
train "$ranks" single-others --sharding state --clip 1000
same_end single-parts single-others
