#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Converts generated images, trains on them, and resumes from the checkpoint. With a tiny learning
# rate the second epoch is no better than the first, so the rate drops.
# Usage: train.sh EXPECT CONVERTER PROGRAM DIRECTORY MPIRUN...
set -euo pipefail
source "$(dirname "$0")/../../support/fresh_directory.sh"
expect=$1 converter=$2 program=$3 directory=$4
shift 4

fresh_directory "$directory"
"$converter" --stand-in-size 100 --output "$directory/data"
train=("$@" "$program" --data "$directory/data" --batch-size 8 --warmup-epochs 1
  --checkpoints "$directory/checkpoints")
bash "$expect" 0 '^epoch 1/1: loss [0-9.]+, accuracy [0-9.]+, validation loss [0-9.]+' \
  "${train[@]}" --epochs 1
output=$(bash "$expect" 0 '^Test accuracy: [01]\.[0-9]{4}$' "${train[@]}" --epochs 2)
printf '%s\n' "$output"
if grep -q '^epoch 1/' <<<"$output" || ! grep -q '^epoch 2/2: loss ' <<<"$output"; then
  echo "the second run did not go on after the first epoch" >&2
  exit 1
fi

lowered='^the validation loss has not fallen for 1 epochs: the learning rate is now [0-9.]+e-11$'
bash "$expect" 0 "$lowered" "$@" "$program" --data "$directory/data" --batch-size 8 \
  --learning-rate 1e-10 --warmup-epochs 0 --patience 0 --epochs 2
