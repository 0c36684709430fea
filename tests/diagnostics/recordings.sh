#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# One rank deviates from the others: the flight records of all ranks show which rank, and how.
# Usage: recordings.sh HOW RANKS PROGRAM DIAGNOSE MPIRUN...
set -u
how=$1 ranks=$2 program=$3 diagnose=$4
shift 4
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
export KOLO_FLIGHT_RECORDER_DIR=$directory KOLO_FLIGHT_RECORDER_SIGNAL=USR2
export KOLO_STALL_WARNING=0 KOLO_STALL_SHUTDOWN=0

die() {
  echo "recordings: $*" >&2
  exit 1
}

records() { find "$directory" -name 'kolo-flight-*.jsonl' | wc -l; }

# Waits until so many ranks have left a record.
await_records() {
  local tries
  for ((tries = 0; tries < 600; ++tries)); do
    (($(records) < $1)) || return 0
    sleep 0.1
  done
  die "$(records) records, wanted $1"
}

others=$((ranks == 2 ? 1 : ranks - 1))
case $how in
  skipped)
    KOLO_STALL_SHUTDOWN=3 "$@" "$program" skipped && die "it succeeded"
    expected=$ranks pattern='rank 1 has not submitted allreduce .*"layer.bias" \(number 10\)'
    ;;
  left)
    "$@" "$program" left && die "it succeeded"
    expected=$ranks pattern='rank 1 has not submitted allreduce .*"layer.*\(number 10\)'
    ;;
  killed)
    "$@" "$program" killed && die "it succeeded"
    expected=$others pattern='^rank 1 left no record'
    ;;
  signalled)
    "$@" "$program" signalled >"$directory/output" 2>&1 &
    job=$!
    until grep -q 'rank 1 is away' "$directory/output"; do
      kill -0 "$job" 2>/dev/null || die "it ended: $(cat "$directory/output")"
      sleep 0.1
    done
    kill -USR2 "$job"
    await_records "$ranks"
    kill -TERM "$job"
    wait "$job"
    expected=$ranks pattern='rank 1 has not submitted allreduce .*"layer.*\(number 10\)'
    ;;
esac

# When a job fails, mpirun kills late ranks, so one of the records may be missing.
(($(records) >= 1 && $(records) <= expected)) || die "$(records) records, wanted $expected"
"$diagnose" "$directory"/kolo-flight-*.jsonl >"$directory/report" || die "kolo-diagnose failed"
cat "$directory/report"
grep -Eq "$pattern" "$directory/report" || die "the report has no line like: $pattern"
if (($(records) == expected)); then
  "$diagnose" --json "$directory"/kolo-flight-*.jsonl | tr -d ' \n' | grep -q '"culprits":\[1\]' ||
    die "the JSON does not name rank 1"
fi
