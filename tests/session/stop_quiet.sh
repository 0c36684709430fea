#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A training that nothing stops ends without a word, although its ranks end one after the other.
# Usage: stop_quiet.sh EXPECT PROGRAM DIRECTORY MPIRUN...
set -euo pipefail
source "$(dirname "$0")/../support/fresh_directory.sh"
program=$2 directory=$3
shift 3
fresh_directory "$directory"
export KOLO_FLIGHT_RECORDER_DIR=$directory
for ((i = 0; i < 5; ++i)); do
  output=$("$@" "$program" quiet 2>&1)
  printf '%s\n' "$output"
  [[ -z $output ]]
done
