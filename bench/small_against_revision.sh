#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC1091,SC2034
# Compares the cost of small tensors in two builds of Kolo, in alternating runs on one host: an
# allreduce of 4 bytes whose ranks sleep while they wait, and 1000 tensors of 1 KiB. Prints the rows
# of small_against_revision.csv: the median of each build's runs in microseconds, and of the ratio
# of the second build's time to the first's in a round, with its minimum and maximum.
# Usage: small_against_revision.sh OLD NEW [ROUNDS]
#   OLD, NEW  the two kolo-perf programs
#   ROUNDS    number of rounds (9)
set -euo pipefail
old=$1 new=$2 rounds=${3:-9}

source "$(dirname "$0")/compare_builds.sh"

from_sleep() { mpirun -np "$2" "$1" --mode from-sleep --sizes 4 --iterations 20 --csv | column kolo_us; }
tensors() { mpirun -np "$2" "$1" --gradients 1000x1KB --memory private --iterations 20 --csv | column kolo_us; }

echo "what,ranks,rounds,old_us,new_us,ratio,min,max"
compare from_sleep 2 "4 B from sleep" 2
for np in 2 4; do compare tensors "$np" "1000 tensors of 1 KiB" "$np"; done
