#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The losses of ranks with different shares equal those of one process, up to the rounding of sums.
# Usage: same_losses.sh EXPECT PROGRAM DIRECTORY MPIRUN...
set -euo pipefail
program=$2
shift 3

losses() { sed -n 's/^epoch \([0-9]*\): loss \([0-9.]*\),.*/\1 \2/p'; }
paste -d ' ' <("$program" -1 3 | losses) <("$@" "$program" 0 3 | tee /dev/stderr | losses) | awk '
  { print
    difference = $2 - $4
    if ($1 != $3 || difference > 2e-6 || difference < -2e-6) wrong = 1
    if (NR > 1 && $4 >= last) { print "the loss did not fall"; exit 1 }
    last = $4 }
  END { if (NR != 3) { print "3 losses were expected"; exit 1 }
        if (wrong) { print "the losses differ"; exit 1 } }'
