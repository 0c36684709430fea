#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A process that starts after a loss waits for the others until the job is over. It is ended then,
# and neither the process nor kolorun reports an error.
#
# Usage: late_test.sh DIRECTORY KOLORUN PROGRAM
set -uo pipefail
source "$(dirname "$0")/../support/fresh_directory.sh"
directory=$1 kolorun=$2 program=$3
fresh_directory "$directory" || exit
# Membership changes at commits, of which there are none.
output=$("$kolorun" -np 2 --min-np 1 --cooldown 1:1 -v "$program" "$directory" \
  commit_every=1000000 pause_ms=40 fault=kill:step:1:5 2>&1) || {
  printf '%s\nFAILED: the job\n' "$output"
  exit 1
}
if [[ $output != *'1 new processes wait'* || $output == *'job is over'* || $output == *terminate* ]]; then
  printf '%s\nFAILED: the late process\n' "$output"
  exit 1
fi
echo "it ends quietly"
