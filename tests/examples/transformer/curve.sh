#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Steps over the same windows have equal losses, whether one rank runs four passes per step, two ranks
# run two each, or four ranks run one.
# Usage: curve.sh PROGRAM MPIRUN
set -euo pipefail
program=$1 mpirun=$2

# Step and loss of each step. The windows of three steps and a part of a fourth make an epoch.
losses() {
  MPIEXEC_TIMEOUT=60 "$mpirun" -np "$1" "$program" --accumulate "$2" --steps 8 --log-every 1 --sample 0 \
    --text-size 1900 --warmup 2 --learning-rate 0.01 --width 16 --heads 2 --context 16 |
    sed -n 's/^step \([0-9]*\): loss \([0-9.]*\),.*/\1 \2/p'
}

one=$(losses 1 4)
for ranks in 2 4; do
  many=$(losses "$ranks" $((4 / ranks)))
  paste <(echo "$one") <(echo "$many") | awk -v ranks="$ranks" '
    { print "step " $1 ": " $2 " on 1 rank, " $4 " on " ranks
      difference = $2 - $4
      if ($1 != $3 || difference > 2e-5 || difference < -2e-5) wrong = 1
      if (NR == 1) first = $2 }
    END { if (NR != 8) { print "8 steps were expected"; exit 1 }
          if ($2 > first - 0.5) { print "the loss did not fall"; exit 1 }
          if (wrong) { print "the losses differ"; exit 1 } }'
done
