#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Trains on generated shapes, with eight images per step on any number of ranks: the loss equals that
# of one rank. Then it loads the network from its checkpoint.
# Usage: train.sh EXPECT PROGRAM DIRECTORY MPIRUN -np RANKS ...
set -euo pipefail
source "$(dirname "$0")/../../support/fresh_directory.sh"
expect=$1 program=$2 directory=$3
shift 3
mpirun=$1 ranks=$3

run() {
  local count=$1
  shift
  bash "$expect" 0 "^val: 12 pictures, AP [01]\.[0-9]{4}, AP50 [01]\.[0-9]{4}, " \
    "$mpirun" -np "$count" "$program" --data "$directory/shapes" --generate 48 \
    --backbone tiny --channels 16 --head-layers 1 --image-size 96 --anchor-size 2 \
    --learning-rate 8e-3 --batch-size $((8 / count)) "$@"
}

fresh_directory "$directory"
run "$ranks" --epochs 8 --save "$directory/save" --pictures "$directory/found" | tee "$directory/all"
run 1 --epochs 8 >"$directory/alone"
run "$ranks" --epochs 8 --save "$directory/save" >"$directory/again"

loss_of() { sed -n "s|^epoch $2: loss \([0-9.]*\) .*|\1|p" "$directory/$1"; }
is_true() { awk "BEGIN { exit !($1) }" || { echo "not so: $1" >&2; exit 1; }; }
first=$(loss_of all 1/8) last=$(loss_of all 8/8) alone=$(loss_of alone 1/8)
is_true "$last < $first / 2"
is_true "$alone > $first - 0.001 && $alone < $first + 0.001"
found=$(sed -n 's/^val: .*AP50 \([0-9.]*\),.*/\1/p' "$directory/all")
is_true "$found > 0.2"
[[ $(grep '^val' "$directory/again") == "$(grep '^val' "$directory/all")" ]]
[[ $(find "$directory/found" -name 'val-*.jpg' | wc -l) == 8 ]]
