#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs a job whose ranks are in several languages, and compares what they print: each line must come from all ranks, and
# the last error from all but the rank that leaves.
#
# Usage: languages.sh PACKAGES KOLORUN RANKS FIRST PROGRAM...
#   PACKAGES   the folder with the Python package
#   FIRST      the place of rank 0's program in the list; the next rank has the next one, and so on
#   PROGRAM    a program, or a file of Python
set -euo pipefail
export PYTHONPATH=$1 PYTHONDONTWRITEBYTECODE=1
kolorun=$2 ranks=$3 first=$4
shift 4
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/support/python_with.sh
source "$here/../support/python_with.sh"
python_with kolo_train numpy
export python first
# shellcheck disable=SC2016  # the ranks' shells expand these variables
output=$("$kolorun" -np "$ranks" bash -c '
  programs=("$@")
  program=${programs[(RANK + first) % $#]}
  if [[ $program == *.py ]]; then exec "$python" "$program"; fi
  exec "$program"' ranks "$@" 2>&1) || { printf '%s\n' "$output"; exit 1; }

printf '%s\n' "$output" | cut -c1-200
expected=$(for name in allreduce 'compressed allreduce' "group's doubles" "group's integers" allgather broadcast \
  reducescatter alltoall 'set of even ranks' 'first request' 'second request'; do echo "$ranks bits of $name"; done
  echo "$ranks error Mismatch of 'start'"
  echo "$ranks error Mismatch of 'weights'"
  echo "$((ranks - 1)) error PeerLeft of 'missed'")
# Lines that differ are counted apart.
found=$(LC_ALL=C sort <<<"$output" | uniq -c | sed -E 's/^ *//; s/(^[^:,]*)[:,].*/\1/')
diff <(LC_ALL=C sort <<<"$expected") <(LC_ALL=C sort <<<"$found") ||
  { echo "the ranks differ, or print something else"; exit 1; }
