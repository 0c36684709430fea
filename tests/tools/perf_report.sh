#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs a command and checks the JSON that it prints.
# Usage: perf_report.sh CHECKER RANKS ROWS [idle] -- COMMAND...
set -euo pipefail
check=()
while [[ $1 != -- ]]; do
  check+=("$1")
  shift
done
shift
# A setting is part of the report, the secret of a job is not.
export KOLO_LOG_LEVEL=warning KOLO_RENDEZVOUS_SECRET=0123456789abcdef
"$@" | "${check[@]}"
