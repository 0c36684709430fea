#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs an elastic program in a fresh folder, and passes the folder as its first argument.
#
# Usage: elastic_test.sh EXPECT DIRECTORY STATUS PATTERN PROGRAM [KOLORUN ARGUMENTS...] -- [ARGUMENTS...]
set -uo pipefail
source "$(dirname "$0")/../support/fresh_directory.sh"
expect=$1 directory=$2 status=$3 pattern=$4 program=$5
shift 5
fresh_directory "$directory" || exit
launcher=()
while [[ $1 != -- ]]; do
  launcher+=("$1")
  shift
done
shift
exec bash "$expect" "$status" "$pattern" "${launcher[@]}" "$program" "$directory" "$@"
