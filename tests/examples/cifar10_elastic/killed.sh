#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Kills each rank of an elastic training in turn, once another has taken its place. Then stops the
# job in good order, and starts it again from its checkpoint with another number of ranks.
#
# Usage: killed.sh KOLORUN PROGRAM LOG
set -uo pipefail
kolorun=$1 program=$2 log=$3

checkpoints=$log.checkpoints
rm -rf "$checkpoints"
train=("$program" --epochs 1000 --stand-in-size 300 --batch-size 10 --commit-every 2
  --save "$checkpoints")

"$kolorun" -np 3 --min-np 2 --cooldown 0.1:0.1 "${train[@]}" >"$log" 2>&1 </dev/null &
job=$!

# meets N PATTERN: waits for N such lines.
meets() {
  local i
  for ((i = 0; i < 600; ++i)); do
    (($(grep -cE -e "$2" "$log") >= $1)) && return
    sleep 0.1
  done
  printf 'killed.sh: there are no %d lines %s:\n%s\n' "$1" "$2" "$(cat "$log")"
  kill "$job"
  exit 1
}

meets 1 '^3 ranks train from epoch 1, image 0$'
for loss in 1 2 3; do
  mapfile -t ranks < <(pgrep -P "$job")
  kill -9 "${ranks[0]}"
  meets "$((loss + 1))" '^3 ranks train from epoch'
done
meets 2 '^epoch [0-9]+/1000: train loss [0-9.]+, '
# stops: SIGTERM ends the job with status 0 and a checkpoint, whose step becomes $saved.
stops() {
  local status=0
  kill -TERM "$job"
  wait "$job" || status=$?
  if ((status != 0)); then
    printf 'killed.sh: the job has ended with status %d:\n%s\n' "$status" "$(cat "$log")"
    exit 1
  fi
  saved=$(find "$checkpoints" -maxdepth 1 -name 'checkpoint-*' | sed 's/.*-0*//' | sort -n | tail -1)
}

stops
before=$saved
"$kolorun" -np 2 --min-np 2 "${train[@]}" >"$log" 2>&1 </dev/null &
job=$!
meets 1 "^loaded the checkpoint of step $before\$"
meets 1 '^2 ranks train from epoch [0-9]+, image [0-9]+$'
# Before a rank's first stop_requested(), which follows its first step, SIGTERM ends the rank.
meets 1 '^epoch [0-9]+/1000: train loss [0-9.]+, '
stops
((saved > before)) || exit 1
echo "three ranks were lost and replaced"
