#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs the CIFAR-10 example on 1 rank, on 2 ranks, and twice on 1 rank side by side, in alternating
# runs with one thread per rank. Prints the speedup of 2 ranks over 1 (scaling), and how much longer
# a step on 2 ranks takes than in the two runs without communication (cost).
# Usage: cifar10_scaling.sh CIFAR10_PROGRAM [ROUNDS [cifar10 options ...]]
set -euo pipefail
program=$1 rounds=${2:-5}
shift $(($# < 2 ? $# : 2))

images_per_second() {  # RANKS IMAGES; in the last epoch, so that warm-up does not count
  OMP_NUM_THREADS=1 mpirun -np "$1" "$program" --stand-in-size "$2" --epochs 2 "${@:3}" 2>/dev/null |
    sed -n 's/.* \([0-9.]*\) images\/s$/\1/p' | tail -n 1
}

side_by_side() {  # the total of two simultaneous runs with half of the images each
  local first second
  first=$(mktemp) second=$(mktemp)
  images_per_second 1 3200 "$@" >"$first" &
  images_per_second 1 3200 "$@" >"$second"
  wait
  paste -d+ "$first" "$second" | awk -F+ '{ print $1 + $2 }'
  rm -f "$first" "$second"
}

median() { sort -g | awk '{ v[NR] = $1 } END { print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'; }

ratios=() costs=()
for ((round = 1; round <= rounds; ++round)); do
  one=$(images_per_second 1 6400 "$@")
  two=$(images_per_second 2 6400 "$@")
  apart=$(side_by_side "$@")
  ratios+=("$(awk "BEGIN { printf \"%.3f\", $two / $one }")")
  costs+=("$(awk "BEGIN { printf \"%.1f\", 100 * ($apart / $two - 1) }")")
  echo "round $round: 1 rank $one images/s, 2 ranks $two, 2 apart $apart;" \
    "scaling ${ratios[-1]}, cost of a step ${costs[-1]} %"
done
echo "median scaling: $(printf '%s\n' "${ratios[@]}" | median)," \
  "median cost of a step: $(printf '%s\n' "${costs[@]}" | median) %"
