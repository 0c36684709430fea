#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The losses on any number of ranks equal those of the serial program, up to the rounding of sums.
# Usage: same_losses.sh EXPECT SERIAL PARALLEL DIRECTORY MPIRUN...
set -euo pipefail
serial=$2 parallel=$3
shift 4

paste <("$serial") <("$@" "$parallel") | awk '
  { print
    difference = $4 - $8
    if ($2 != $6 || difference > 2e-3 || difference < -2e-3) wrong = 1
    last = $8 }
  END { if (NR != 6) { print "6 losses were expected"; exit 1 }
        if (last > 0.02) { print "the loss did not fall"; exit 1 }
        if (wrong) { print "the losses differ"; exit 1 } }'
