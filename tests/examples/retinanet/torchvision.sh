#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# With the weights of torchvision's ResNet-50, the backbone computes the same features.
# Usage: torchvision.sh EXPECT TEST_PROGRAM DIRECTORY MPIRUN...
set -euo pipefail
here=$(dirname "$0")
source "$here/../../support/fresh_directory.sh"
source "$here/../../support/python_with.sh"
python_with torch torchvision safetensors
expect=$1 program=$2 directory=$3

fresh_directory "$directory"
"$python" "$here/weights.py" resnet50 "$directory"
KOLO_TORCHVISION_FEATURES=$directory bash "$expect" 0 '^\[  PASSED  \] 1 test' \
  "$program" --gtest_filter=Torchvision.HasTheSameFeatures
