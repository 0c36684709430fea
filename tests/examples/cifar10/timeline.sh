#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The timelines of a training run are valid.
# Usage: timeline.sh EXPECT PROGRAM TRACE_PROGRAM DIRECTORY MPIRUN...
set -euo pipefail
source "$(dirname "$0")/../../support/fresh_directory.sh"
program=$2 check=$3 directory=$4
shift 4

fresh_directory "$directory"
KOLO_TIMELINE="$directory/%r.json" "$@" "$program" --stand-in-size 200 --epochs 1
"$check" "$directory"/0.json "$directory"/1.json
grep -q '"REDUCE"' "$directory/0.json"
