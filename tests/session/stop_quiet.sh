#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A training that nothing stops ends without a word, although its ranks end one after the other.
# Usage: stop_quiet.sh EXPECT PROGRAM DIRECTORY MPIRUN...
set -euo pipefail
program=$2
shift 3
for ((i = 0; i < 5; ++i)); do
  output=$("$@" "$program" quiet 2>&1)
  printf '%s\n' "$output"
  [[ -z $output ]]
done
