#!/usr/bin/env bash
# The timelines of a training run keep to the rules of their format.
# Usage: timeline.sh PROGRAM DIRECTORY TRACE_PROGRAM MPIRUN...
set -euo pipefail
program=$1 directory=$2 check=$3
shift 3

rm -rf "$directory"
mkdir -p "$directory"
KOLO_TIMELINE="$directory/%r.json" "$@" "$program" --stand-in-size 200 --epochs 1
"$check" "$directory"/0.json "$directory"/1.json
grep -q '"REDUCE"' "$directory/0.json"
