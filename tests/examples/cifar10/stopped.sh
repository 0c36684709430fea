#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A run that a signal to one rank stops in the middle of an epoch, and that is resumed, ends with the
# same network as an uninterrupted run.
# Usage: stopped.sh EXPECT PROGRAM DIRECTORY MPIRUN...
set -euo pipefail
source "$(dirname "$0")/../../support/fresh_directory.sh"
source "$(dirname "$0")/../../support/signal_a_rank.sh"
program=$2 directory=$3
shift 3
train=("$@" "$program" --stand-in-size 400 --batch-size 8 --epochs 2)

fresh_directory "$directory"
"${train[@]}" --save "$directory/whole"
signal_a_rank USR1 "$directory/stopped" "${train[@]}" --save-every 5 --save "$directory/stopped"
ls "$directory/stopped"
[[ ! -e $directory/stopped/model.pt ]]
"${train[@]}" --resume "$directory/stopped" --save "$directory/resumed"
cmp "$directory/whole/model.pt" "$directory/resumed/model.pt"
