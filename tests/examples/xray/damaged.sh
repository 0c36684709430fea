#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# One image is truncated: the rank that reads it reports that, and none hangs. Then there is only one
# class.
# Usage: damaged.sh EXPECT PROGRAM DIRECTORY MPIRUN...
set -euo pipefail
source "$(dirname "$0")/../../support/fresh_directory.sh"
expect=$1 program=$2 directory=$3
shift 3
train=("$@" "$program" --data "$directory/images" --image-size 32 --epochs-total 2)

fresh_directory "$directory"
"${train[@]}" --generate 40
truncate -s 1000 "$directory/images/opacity/00001.jpg"
bash "$expect" nonzero "rank [01]: .*cannot read '.*opacity/00001.jpg': " "${train[@]}"

rm -r "$directory/images/normal"
bash "$expect" nonzero "rank [01]: '.*images' has 1 folders with images; expected one for each" "${train[@]}"
