#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A truncated checkpoint: every rank reports it, and none hangs.
# Usage: truncated_checkpoint.sh EXPECT PROGRAM DIRECTORY MPIRUN...
set -euo pipefail
source "$(dirname "$0")/../../support/fresh_directory.sh"
expect=$1 program=$2 directory=$3
shift 3

fresh_directory "$directory"
"$@" "$program" --stand-in-size 64 --epochs 1 --save "$directory"
checkpoint=$(echo "$directory"/checkpoint-*)
truncate -s 100000 "$checkpoint"/model-00001-of-*.safetensors

bash "$expect" nonzero "rank [01]: cannot resume: .*model-00001-of-.*' is truncated: it has [0-9]+ of [0-9]+ bytes of data" \
  "$@" "$program" --stand-in-size 64 --epochs 2 --resume "$checkpoint"
