#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The program for one process, before the seven changes: trains, and keeps the network of each
# epoch.
# Usage: single_process.sh EXPECT CONVERTER PROGRAM DIRECTORY MPIRUN...
set -euo pipefail
source "$(dirname "$0")/../../support/fresh_directory.sh"
expect=$1 converter=$2 program=$3 directory=$4

fresh_directory "$directory"
"$converter" --stand-in-size 100 --output "$directory/data"
output=$(bash "$expect" 0 '^Test accuracy: [01]\.[0-9]{4}$' "$program" --data "$directory/data" \
  --batch-size 8 --epochs 4 --learning-rate 0.05 --checkpoints "$directory/checkpoints")
printf '%s\n' "$output"
[[ -s $directory/checkpoints/checkpoint-4.pt ]]
loss_of() { sed -n "s|^epoch $1/4: loss \([0-9.]*\), .*|\1|p" <<<"$output"; }
awk "BEGIN { exit !($(loss_of 4) < $(loss_of 1)) }" || {
  echo "the loss did not fall: $(loss_of 1), $(loss_of 4)" >&2
  exit 1
}
bash "$expect" nonzero "the directory '/nowhere/train' does not exist" "$program" --data /nowhere
