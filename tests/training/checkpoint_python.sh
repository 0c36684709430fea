#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Python reads a checkpoint written by the ranks, another number of ranks loads it, and all ranks
# load one written by Python.
# Usage: checkpoint_python.sh EXPECT PROGRAM DIRECTORY MPIRUN -np RANKS ...
set -euo pipefail
here=$(dirname "$0")
source "$here/../support/fresh_directory.sh"
source "$here/../support/python_with.sh"
python_with numpy safetensors
expect=$1 program=$2 directory=$3 merge=$(dirname "$2")/kolo-checkpoint
shift 3
mpirun=("$@")
ranks=$3
script=$here/checkpoint_python.py

fresh_directory "$directory"
"${mpirun[@]}" "$program" save "$directory"
folder=$directory/checkpoint-0000000010
"$python" "$script" read "$folder/model.safetensors.index.json" "$ranks"
bash "$expect" 0 "step 10 of $ranks ranks" "${mpirun[@]}" "$program" load "$directory"

"$merge" merge "$folder" "$directory/merged.safetensors"
"$python" "$script" read "$directory/merged.safetensors" "$ranks"

for other in 1 3; do
  mpirun[2]=$other
  bash "$expect" 0 "step 10 of $ranks ranks" "${mpirun[@]}" "$program" load "$directory"
  bash "$expect" 0 "step 10 of $ranks ranks" "${mpirun[@]}" "$program" load-from "$directory/merged.safetensors"
done

"$python" "$script" write "$directory/python.safetensors"
bash "$expect" 0 "step 20 of 0 ranks" "${mpirun[@]}" "$program" load-from "$directory/python.safetensors"

# Python has changed weights, and Kolo reads them.
"$python" "$script" change "$folder/model-00001-of-$(printf %05d "$ranks").safetensors"
bash "$expect" nonzero "lacks the tensor 'model.brain'" "${mpirun[@]}" "$program" load-from "$folder"
"$python" "$script" change "$directory/merged.safetensors"
bash "$expect" nonzero "Missing in the state: 'brain'" "${mpirun[@]}" "$program" \
  load-from "$directory/merged.safetensors"
