#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Whole and in shares, the model has the same losses and ends with the same bytes. Either can load what the other
# has saved. Without clipping, whose norms are summed in another order.
# Usage: same_losses.sh EXPECT PROGRAM DIRECTORY MPIRUN...
set -euo pipefail
source "$(dirname "$0")/../../support/fresh_directory.sh"
program=$2 directory=$3
shift 3
start=("$@")

# train NAME OPTION...: its losses go to NAME.losses.
train() {
  "${start[@]}" "$program" --layers 3 --width 24 --heads 2 --context 16 --text-size 5000 --steps 6 \
    --learning-rate 0.01 --clip 0 --save "$directory/$1.safetensors" "${@:2}" | tee "$directory/$1.output"
  grep -o '^step [0-9]*: loss [0-9.]*' "$directory/$1.output" >"$directory/$1.losses"
  [[ $(wc -l <"$directory/$1.losses") == 6 ]]
}
same() {
  cmp "$directory/$1.losses" "$directory/$2.losses"
  cmp "$directory/$1.safetensors" "$directory/$2.safetensors"
}

fresh_directory "$directory"
train whole --sharding none
train shares --sharding full
same whole shares
train none_ahead --sharding full --units-ahead 0
same whole none_ahead

train whole_again --sharding none --load "$directory/shares.safetensors"
train shares_again --sharding full --load "$directory/whole.safetensors"
same whole_again shares_again
if cmp -s "$directory"/whole{,_again}.losses; then
  echo "the saved model was not loaded" >&2
  exit 1
fi
