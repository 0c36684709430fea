#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Two epochs in two runs end with the same network as two epochs in one run, and each run reports
# the files that it has saved. The same holds with epochs divided among the ranks, and with hooks
# that keep rounding errors.
# Usage: resume.sh EXPECT PROGRAM DIRECTORY MPIRUN...
set -euo pipefail
source "$(dirname "$0")/../../support/fresh_directory.sh"
expect=$1 program=$2 directory=$3
shift 3

train() { "${mpirun[@]}" "$program" --stand-in-size 200 "$@"; }
mpirun=("$@")

fresh_directory "$directory"
bash "$expect" 0 "^saving checkpoint: $directory/whole/checkpoint-[0-9]+$" \
  "${mpirun[@]}" "$program" --stand-in-size 200 --epochs 2 --save "$directory/whole" | tee "$directory/output"
grep -x "trained network saved: $directory/whole/model.pt" "$directory/output"
train --epochs 1 --save "$directory/first"
train --epochs 2 --resume "$directory/first" --save "$directory/second"
cmp "$directory/whole/model.pt" "$directory/second/model.pt"
if cmp -s "$directory/first/model.pt" "$directory/second/model.pt"; then
  echo "the second run did not train" >&2
  exit 1
fi

train --epochs-total 4 --save "$directory/whole_total"
train --epochs-total 2 --save "$directory/first_total"
train --epochs-total 4 --resume "$directory/first_total" --save "$directory/second_total"
cmp "$directory/whole_total/model.pt" "$directory/second_total/model.pt"

for hook in int8 power-sgd; do
  train --compression "$hook" --epochs 2 --save "$directory/whole_$hook"
  train --compression "$hook" --epochs 1 --save "$directory/first_$hook"
  train --compression "$hook" --epochs 2 --resume "$directory/first_$hook" --save "$directory/second_$hook"
  cmp "$directory/whole_$hook/model.pt" "$directory/second_$hook/model.pt"
  if cmp -s "$directory/whole_$hook/model.pt" "$directory/whole/model.pt"; then
    echo "$hook changes nothing" >&2
    exit 1
  fi
done
