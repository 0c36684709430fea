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
expect=$1 program=$2 directory=$3
shift 3
mpirun=("$@")
ranks=$3
script=$here/checkpoint_python.py

fresh_directory "$directory"
"${mpirun[@]}" "$program" save "$directory"
file=$directory/checkpoint-0000000010.safetensors
"$python" "$script" read "$file" "$ranks"
bash "$expect" 0 "step 10 of $ranks ranks" "${mpirun[@]}" "$program" load "$directory"

mpirun[2]=3
bash "$expect" 0 "step 10 of $ranks ranks" "${mpirun[@]}" "$program" load "$directory"

mkdir "$directory/python"
"$python" "$script" write "$directory/python/checkpoint-0000000020.safetensors"
bash "$expect" 0 "step 20 of 0 ranks" "${mpirun[@]}" "$program" load "$directory/python"

# Python has changed weights, and Kolo reads them.
"$python" "$script" change "$file"
bash "$expect" nonzero "Missing in the state: 'brain'" "${mpirun[@]}" "$program" load "$directory"
