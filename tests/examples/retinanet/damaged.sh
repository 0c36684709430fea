#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# An image or the annotations are damaged: a rank that reads them reports it, and none hangs.
# Usage: damaged.sh EXPECT PROGRAM DIRECTORY MPIRUN...
set -euo pipefail
source "$(dirname "$0")/../../support/fresh_directory.sh"
expect=$1 program=$2 directory=$3
shift 3
data=$directory/shapes
annotations=$data/annotations/instances_train2017.json
train=("$@" "$program" --data "$data" --backbone tiny --channels 8 --head-layers 0 --image-size 32
  --epochs 1)

fresh_directory "$directory"
"${train[@]}" --generate 12

truncate -s 1000 "$data/train2017/000000000005.jpg"
bash "$expect" nonzero "rank [01]: .*cannot read '.*train2017/000000000005.jpg': " "${train[@]}"

sed -i 's/"category_id": 7/"category_id": 8/' "$annotations"
bash "$expect" nonzero \
  "rank [01]: .*cannot read '.*instances_train2017.json': annotation [0-9]+: there is no category 8" \
  "${train[@]}"

# More ranks than pictures.
bash "$expect" nonzero "rank [01]: 1 pictures to train on are too few for 2 ranks" \
  "$@" "$program" --data "$directory/one" --generate 1 --backbone tiny --image-size 32
