#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# One data file has only half of its records: every rank reports it, and none hangs.
# Usage: truncated_data.sh EXPECT PROGRAM DIRECTORY MPIRUN...
set -euo pipefail
source "$(dirname "$0")/../../support/fresh_directory.sh"
expect=$1 program=$2 directory=$3
shift 3

fresh_directory "$directory"
for batch in data_batch_{1,2,3,4,5} test_batch; do
  truncate -s 30730000 "$directory/$batch.bin"
done
truncate -s 15365000 "$directory/data_batch_3.bin"

bash "$expect" nonzero "rank [01]: '.*data_batch_3.bin' is truncated .* found 15365000 bytes" \
  "$@" "$program" --data-dir "$directory" --epochs 1
