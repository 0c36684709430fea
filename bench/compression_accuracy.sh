#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The test accuracy of the CIFAR-10 example on 2 ranks with each compression of gradients, in runs
# with the same seeds. Prints the rows of compression_accuracy.csv. Runs that RESULTS already
# contains are not repeated, and an interrupted run resumes at its last epoch, so a campaign may be
# split.
# Usage: compression_accuracy.sh PROGRAMS DATA RESULTS [SEEDS [COMPRESSIONS [EPOCHS [IMAGES]]]]
#   PROGRAMS      directory of cifar10
#   DATA          directory of CIFAR-10's binary files
#   RESULTS       directory of logs and checkpoints
#   SEEDS         "1 2 3"
#   COMPRESSIONS  "none bf16 int8 power-sgd"
#   EPOCHS        10
#   IMAGES        number of training images (20000; 0: all 50000)
set -euo pipefail
programs=$1 data=$2 results=$3
seeds=${4:-1 2 3} compressions=${5:-none bf16 int8 power-sgd} epochs=${6:-10} images=${7:-20000}

train() { # COMPRESSION SEED
  local run=$results/$1.$2
  local resume=()
  mkdir -p "$run"
  ! grep -q '^test accuracy' "$run/log" 2>/dev/null || return 0
  [[ -z $(find "$run" -name 'checkpoint-*.safetensors') ]] || resume=(--resume "$run")
  OMP_NUM_THREADS=1 mpirun -np 2 "$programs/cifar10" --data-dir "$data" --limit "$images" --epochs "$epochs" \
    --seed "$2" --compression "$1" --save "$run" "${resume[@]}" >>"$run/log"
  rm -f "$run"/checkpoint-*.safetensors "$run/model.pt"
}

for seed in $seeds; do
  for compression in $compressions; do
    train "$compression" "$seed"
    awk -v compression="$compression" -v seed="$seed" -v epochs="$epochs" -v images="$images" '
      /^test loss/ { loss = $3 }
      /^test accuracy/ { accuracy = $3 }
      END { printf "%s,%s,%s,%s,%s,%s\n", compression, seed, images, epochs, accuracy, loss }' \
      "$results/$compression.$seed/log"
  done
done
