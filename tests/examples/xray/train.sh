#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Generates images and trains on them for four epochs in total, on any number of ranks.
# Usage: train.sh EXPECT PROGRAM DIRECTORY MPIRUN -np RANKS ...
set -euo pipefail
source "$(dirname "$0")/../../support/fresh_directory.sh"
expect=$1 program=$2 directory=$3
shift 3
ranks=$3

fresh_directory "$directory"
bash "$expect" 0 "^ +$ranks +$((4 / ranks)) +[0-9.]+ +[0-9]+ +[0-9.]+ +[01]\.[0-9]{4} +[01]\.[0-9]{4}$" \
  "$@" "$program" --data "$directory/images" --generate 80 --image-size 32 --epochs-total 4 --compare
[[ $(find "$directory/images/normal" -type f | wc -l) == 20 ]]
[[ $(find "$directory/images/opacity" -type f | wc -l) == 60 ]]
