#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs a job whose even ranks are in C and whose odd ranks are in Python: all get the same bits and the
# same text of an error.
#
# Usage: languages.sh PACKAGES KOLORUN RANKS PROGRAM   (PROGRAM in C)
set -euo pipefail
export PYTHONPATH=$1 PYTHONDONTWRITEBYTECODE=1
kolorun=$2 ranks=$3 program=$4
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/support/python_with.sh
source "$here/../support/python_with.sh"
python_with kolo_train numpy
export python program here
# shellcheck disable=SC2016  # the ranks' shells expand these variables
output=$("$kolorun" -np "$ranks" bash -c '
  if ((RANK % 2 == 0)); then exec "$program"; fi
  exec "$python" "$here/languages_program.py"' 2>&1) || { printf '%s\n' "$output"; exit 1; }
printf '%s\n' "$output"
counts=$(grep -E '^(bits|text): ' <<<"$output" | sort | uniq -c | awk '{ print $1 }' | tr '\n' ' ')
[[ $counts == "$ranks $ranks " ]] || { echo "the ranks differ: $counts"; exit 1; }
