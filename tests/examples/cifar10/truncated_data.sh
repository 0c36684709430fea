#!/usr/bin/env bash
# One data file lacks its last byte: every rank says so, and none hangs.
# Usage: truncated_data.sh EXPECT PROGRAM DIRECTORY MPIRUN...
set -euo pipefail
expect=$1 program=$2 directory=$3
shift 3

rm -rf "$directory"
mkdir -p "$directory"
for batch in data_batch_{1,2,3,4,5} test_batch; do
  head -c 30730 /dev/zero >"$directory/$batch.bin"
done
head -c 30729 /dev/zero >"$directory/data_batch_3.bin"

bash "$expect" nonzero "rank [01]: '.*data_batch_3.bin' is truncated .* found 30729 bytes" \
  "$@" "$program" --data-dir "$directory" --epochs 1
