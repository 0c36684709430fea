#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC1091,SC2154
# What authenticated control messages cost a training step: two ranks that take each other for
# hosts count them in steps of bench-cifar10-step, and bench-frame-tags times the tags of one.
# Prints CSV: medians of the rounds.
# Usage: frame_tags.sh PROGRAMS [ROUNDS]
#   PROGRAMS  directory of bench-cifar10-step and bench-frame-tags
#   ROUNDS    number of rounds (5)
set -euo pipefail
programs=$1 rounds=${2:-5}
export KOLO_FLIGHT_RECORDER_DIR=off KOLO_TEST_RANKS_PER_HOST=1

for ((round = 0; round < rounds; ++round)); do
  "$programs/kolorun" -np 2 "$programs/bench-cifar10-step" --batch-size 32 --rounds 5 |
    sed -nE 's/^with Kolo +([0-9.]+) ms a step.*/step \1/p; s/^([0-9.]+) control messages of ([0-9]+) B.*/messages \1 \2/p'
  "$programs/bench-frame-tags" | sed 's/^/tag /'
done | python3 -c '
import statistics, sys
rows = {}
for line in sys.stdin:
    what, *values = line.split()
    key = (what, values.pop(0)) if what == "tag" else what
    rows.setdefault(key, []).append([float(value) for value in values])
median = {key: [statistics.median(column) for column in zip(*found)] for key, found in rows.items()}
messages, size = median["messages"]
# A message is made on one side and checked on the other. The length is rounded up.
tags = sorted((int(key[1]), value[0]) for key, value in median.items() if key[0] == "tag")
each = next(time for bytes_, time in tags if bytes_ >= size / messages)
step = median["step"][0]
spent = messages / 2 * each
print("messages,message_bytes,tag_us,tags_us,step_ms,percent")
print(f"{messages:.1f},{size / messages:.0f},{each:.2f},{spent:.1f},{step:.1f},{spent / step / 10:.3f}")'
