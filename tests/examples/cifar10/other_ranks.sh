#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A run of 2 ranks is resumed in the middle of an epoch by 1 and by 3 ranks, which take as many
# steps as the rest of the epoch needs. A run whose ranks have orders of their own needs as many
# ranks to resume.
# Usage: other_ranks.sh EXPECT PROGRAM DIRECTORY MPIRUN -np 2 ...
set -euo pipefail
source "$(dirname "$0")/../../support/fresh_directory.sh"
program=$2 directory=$3
shift 3
mpirun=("$@")

train() { "${mpirun[@]}" "$program" --stand-in-size 200 --batch-size 8 --epochs 1 "$@"; }

# An epoch has 100 images for each rank: 13 steps. After 10 of them 40 images are left.
fresh_directory "$directory"
train --save-every 5 --save "$directory/two"
middle=$directory/two/checkpoint-0000000010

mpirun[2]=1 # 5 steps
train --resume "$middle" --save "$directory/one"
[[ -e $directory/one/checkpoint-0000000015 ]]

refuses() {
  local message=$1
  shift
  if "${mpirun[@]}" "$program" --batch-size 8 "$@" 2>"$directory/refused"; then exit 1; fi
  grep -q "$message" "$directory/refused"
}
refuses "saved without --epochs-total" --stand-in-size 200 --epochs-total 2 --resume "$middle"
mpirun[2]=2
"${mpirun[@]}" "$program" --stand-in-size 40 --batch-size 8 --epochs-total 2 --save "$directory/total"
refuses "saved with --epochs-total" --stand-in-size 40 --epochs 2 --resume "$directory/total"
mpirun[2]=1
refuses "so start 2 ranks" --stand-in-size 40 --epochs-total 2 --resume "$directory/total"

mpirun[2]=3 # 13 images for each rank, 2 steps
train --resume "$middle" --save "$directory/three"
[[ -e $directory/three/checkpoint-0000000012 ]]
