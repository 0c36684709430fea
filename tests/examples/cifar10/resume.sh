#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Two epochs in two runs end with the same network as two epochs in one run.
# Usage: resume.sh EXPECT PROGRAM DIRECTORY MPIRUN...
set -euo pipefail
source "$(dirname "$0")/../../support/fresh_directory.sh"
program=$2 directory=$3
shift 3

train() { "${mpirun[@]}" "$program" --stand-in-size 200 "$@"; }
mpirun=("$@")

fresh_directory "$directory"
train --epochs 2 --save "$directory/whole"
train --epochs 1 --save "$directory/first"
train --epochs 2 --resume "$directory/first" --save "$directory/second"
cmp "$directory/whole/model.pt" "$directory/second/model.pt"
if cmp -s "$directory/first/model.pt" "$directory/second/model.pt"; then
  echo "the second run did not train" >&2
  exit 1
fi
