#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A training of GPU tensors over NCCL ends with the bits of one through shared memory.
# Usage: same_bits.sh EXPECT PROGRAM DIRECTORY MPIRUN -np N ...
set -euo pipefail
source "$(dirname "$0")/../support/fresh_directory.sh"
program=$2 directory=$3
shift 3
mpirun=("$@")

train() { # PATH
  KOLO_GPU_OPERATIONS=$1 "${mpirun[@]}" "$program" --device cuda --stand-in-size 96 \
    --batch-size 8 --epochs 1 --save "$directory/$1"
}

# Digests of the tensors of a saved network.
tensors() {
  python3 - "$directory/$1/model.pt" <<'PYTHON'
import hashlib, sys, zipfile
archive = zipfile.ZipFile(sys.argv[1])
data = sorted(name for name in archive.namelist() if "/data/" in name)
assert len(data) >= 12, data
for name in data:
    print(name, hashlib.sha256(archive.read(name)).hexdigest())
PYTHON
}

fresh_directory "$directory"
train nccl
train staged
diff <(tensors nccl) <(tensors staged)
