#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs a program of Python on several ranks, and checks how it ends; see tests/support/expect.sh.
#
# Usage: run.sh PACKAGES "MODULE;..." STATUS OUTPUT LAUNCHER RANKS PROGRAM [ARGUMENT...]
#   PACKAGES   the folder with the Python package
#   MODULE     what Python must have besides, else the test is skipped
set -euo pipefail
# The folder may be linked to the sources, where no compiled files belong.
export PYTHONPATH=$1 PYTHONDONTWRITEBYTECODE=1
IFS=';' read -ra modules <<<"$2"
status=$3 output=$4 launcher=$5 ranks=$6
shift 6
support=$(dirname "$0")/../support
# shellcheck source=tests/support/python_with.sh
source "$support/python_with.sh"
python_with kolo_train numpy "${modules[@]}"
exec bash "$support/expect.sh" "$status" "$output" "$launcher" -np "$ranks" "$python" "$@"
