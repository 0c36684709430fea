#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Two runs end with the same result as one run, even if the newest checkpoint is damaged and skipped.
# Usage: resumable.sh EXPECT PROGRAM DIRECTORY MPIRUN...
set -euo pipefail
source "$(dirname "$0")/../support/fresh_directory.sh"
program=$2 directory=$3
shift 3

fresh_directory "$directory"
whole=$("$@" "$program" "$directory/whole" 4)
"$@" "$program" "$directory/parts" 2
newest=$(ls -d "$directory"/parts/checkpoint-* | tail -n 1)
truncate -s -1 "$newest"/model-00001-of-*.safetensors
parts=$("$@" "$program" "$directory/parts" 4 2>"$directory/messages")
grep -q "warning: checkpoint '$newest/model-00001-of-.*' is truncated.*skipped" "$directory/messages"
printf '%s\n' "$whole" "$parts"
[[ $whole == *" x + "* && $whole == "$parts" ]]

# A run that a signal stops, and that resumes.
source "$(dirname "$0")/../support/signal_a_rank.sh"
whole=$("$@" "$program" "$directory/all" 60)
stopped=$(signal_a_rank TERM "$directory/stopped" "$@" "$program" "$directory/stopped" 60)
resumed=$("$@" "$program" "$directory/stopped" 60)
printf '%s\n' "$whole" "$resumed"
[[ -z $stopped && $whole == "$resumed" ]]
