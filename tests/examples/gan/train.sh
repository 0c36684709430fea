#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Trains for two epochs, in which both losses change, and writes a picture after each.
# Usage: train.sh EXPECT PROGRAM DIRECTORY MPIRUN...
set -euo pipefail
source "$(dirname "$0")/../../support/fresh_directory.sh"
expect=$1 program=$2 directory=$3
shift 3

fresh_directory "$directory"
bash "$expect" 0 "^epoch 2/2: generator loss [0-9]\.[0-9]{4}, discriminator loss [0-9]\.[0-9]{4}" \
  "$@" "$program" --label -1 --stand-in-size 256 --batch-size 8 --width 4 --noise 8 \
  --learning-rate 0.005 --epochs 2 --samples "$directory/pictures"
for epoch in 1 2; do
  picture=$directory/pictures/epoch-$epoch.ppm
  [[ $(head -c 15 "$picture") == $'P6\n256 256\n255' ]]
  [[ $(stat -c %s "$picture") == $((15 + 256 * 256 * 3)) ]]
done
if cmp -s "$directory"/pictures/epoch-{1,2}.ppm; then
  echo "the generator did not learn" >&2
  exit 1
fi
