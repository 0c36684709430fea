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
head -c 100000 "$directory"/checkpoint-*.safetensors >"$directory/cut.safetensors"

bash "$expect" nonzero "rank [01]: cannot resume: .*cut.safetensors' is truncated: it has [0-9]+ of [0-9]+ bytes of data" \
  "$@" "$program" --stand-in-size 64 --epochs 2 --resume "$directory/cut.safetensors"
