#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Trains from backbone weights written by Python, which only rank 0 reads. A file that lacks a
# tensor ends all ranks.
# Usage: pretrained.sh EXPECT PROGRAM DIRECTORY MPIRUN...
set -euo pipefail
here=$(dirname "$0")
source "$here/../../support/fresh_directory.sh"
source "$here/../../support/python_with.sh"
python_with numpy safetensors
expect=$1 program=$2 directory=$3
shift 3

fresh_directory "$directory"
"$python" "$here/weights.py" tiny "$directory"
train=("$@" "$program" --data "$directory/shapes" --generate 12 --backbone tiny --channels 16
  --head-layers 1 --image-size 64 --anchor-size 2 --epochs 1 --save "$directory/save")
bash "$expect" nonzero "rank 0: .*lacks 1 of the backbone's [0-9]+ tensors, such as 'layer3.0.conv2.weight'" \
  "${train[@]}" --backbone-weights "$directory/lacking.safetensors"
bash "$expect" 0 "^val: 3 pictures, AP [01]\.[0-9]{4}" \
  "${train[@]}" --backbone-weights "$directory/tiny.safetensors"
# Frozen tensors still have the values that Python wrote.
"$python" "$here/weights.py" compare "$directory"
