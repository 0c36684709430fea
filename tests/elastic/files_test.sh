#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Each session of an elastic job writes its own statistics and timelines: the second session does
# not overwrite those of the first.
#
# Usage: files_test.sh DIRECTORY KOLORUN PROGRAM
set -uo pipefail
source "$(dirname "$0")/../support/fresh_directory.sh"
directory=$1 kolorun=$2 program=$3
fresh_directory "$directory" || exit
mkdir "$directory/files"
cd "$directory/files" || exit
failed=0

fail() {
  printf 'FAILED %s\n' "$*"
  failed=1
}

output=$(KOLO_STATISTICS=%r.txt KOLO_TIMELINE=%r.json "$kolorun" -np 3 --min-np 2 --max-np 3 \
  --cooldown 100:100 "$program" "$directory" fault=kill:step:1:5 2>&1) || fail "the job: $output"
# Rank 2 of the first session is rank 1 of the second.
for file in 0.txt 2.txt 0.2.txt 1.2.txt; do
  grep -q '^operations: [1-9]' "$file" || fail "$file: $(ls; cat "$file")"
done
for file in 0.txt 2.txt; do
  grep -q '^operations: .* [1-9][0-9]* failed' "$file" || fail "$file is not of the first session"
done
for file in 0.2.txt 1.2.txt; do
  grep -q '^operations: .* 0 failed' "$file" || fail "$file is not of the second session"
done
for file in 0.json 2.json 0.2.json 1.2.json; do
  grep -q REDUCE "$file" || fail "$file: $(ls)"
  [[ $(tail -n 1 "$file") == ']' ]] || fail "$file is not complete"
done
((failed == 0)) && echo "each session has its files"
exit "$failed"
