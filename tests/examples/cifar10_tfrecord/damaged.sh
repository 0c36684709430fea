#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A file has a wrong bit, then a missing end: every rank reports file and offset, and none hangs.
# Usage: damaged.sh EXPECT CONVERTER PROGRAM DIRECTORY MPIRUN...
set -euo pipefail
source "$(dirname "$0")/../../support/fresh_directory.sh"
expect=$1 converter=$2 program=$3 directory=$4
shift 4

fresh_directory "$directory"
"$converter" --stand-in-size 50 --output "$directory"
file=$directory/validation/validation.tfrecords
size=$(stat -c %s "$file")
record=$((size / 10)) # ten equal records

byte=$(od -An -tu1 -j $((3 * record + 500)) -N 1 "$file")
printf "\\x$(printf %x $((byte ^ 4)))" | dd of="$file" bs=1 seek=$((3 * record + 500)) conv=notrunc status=none
bash "$expect" nonzero "rank [01]: '.*validation.tfrecords' is corrupt at offset $((3 * record + 12)):" \
  "$@" "$program" --data "$directory"

truncate -s $((2 * record + 100)) "$file"
bash "$expect" nonzero "rank [01]: '.*validation.tfrecords' is truncated at offset $((2 * record)):" \
  "$@" "$program" --data "$directory"
