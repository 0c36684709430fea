#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A training of GPU tensors over NCCL, and one staged through the host, end with the same bits as a
# training of CPU tensors, whose gradients are reduced in shared memory. The program trains on the
# CIFAR-10 in the folder KOLO_TEST_CIFAR10 if it is set, otherwise on generated images.
# Usage: same_bits.sh EXPECT PROGRAM DIRECTORY MPIRUN -np N ...
set -euo pipefail
source "$(dirname "$0")/../support/fresh_directory.sh"
program=$2 directory=$3
shift 3
mpirun=("$@")

images=(--stand-in-size 96)
if [[ -n ${KOLO_TEST_CIFAR10:-} ]]; then images=(--data-dir "$KOLO_TEST_CIFAR10" --limit 256); fi

train() { # NAME DEVICE
  "${mpirun[@]}" "$program" --device "$2" "${images[@]}" --batch-size 8 --epochs 1 \
    --save "$directory/$1"
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
train cpu cpu
KOLO_GPU_OPERATIONS=nccl train nccl cuda
KOLO_GPU_OPERATIONS=staged train staged cuda
diff <(tensors cpu) <(tensors nccl)
diff <(tensors cpu) <(tensors staged)
