#!/usr/bin/env bash
# Images per second of the CIFAR-10 example on 1 rank and on 2, one thread each, in alternating runs.
# Usage: cifar10_scaling.sh CIFAR10_PROGRAM [ROUNDS [cifar10 options ...]]
set -euo pipefail
program=$1 rounds=${2:-5}
shift $(($# < 2 ? $# : 2))

images_per_second() { # RANKS: of the last epoch, so that warm-up does not count
  OMP_NUM_THREADS=1 mpirun -np "$1" "$program" --stand-in-size 6400 --epochs 2 "${@:2}" 2>/dev/null |
    sed -n 's/.* \([0-9.]*\) images\/s$/\1/p' | tail -n 1
}

median() { sort -g | awk '{ v[NR] = $1 } END { print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'; }

ratios=()
for ((round = 1; round <= rounds; ++round)); do
  one=$(images_per_second 1 "$@")
  two=$(images_per_second 2 "$@")
  ratio=$(awk "BEGIN { printf \"%.3f\", $two / $one }")
  ratios+=("$ratio")
  echo "round $round: 1 rank $one images/s, 2 ranks $two images/s, ratio $ratio"
done
echo "median ratio: $(printf '%s\n' "${ratios[@]}" | median)"
