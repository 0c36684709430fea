#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs a wheel in a new virtual environment, and trains with it on two ranks. PATH has nothing
# else: no compiler, no MPI.
#
# Usage: tests/package/wheel.sh WHEEL
set -euo pipefail
wheel=$(realpath -- "$1")
sources=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
start=$EPOCHSECONDS
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --disable-pip-version-check "$wheel"
cd "$folder"
in_environment() { env -i HOME="$folder" PATH="$folder/env/bin" "$@"; }
in_environment kolorun -np 2 python3 "$sources/examples/python_trainer/train.py" | tee output
grep -qx 'step 300: loss 0\.[0-9]*' output
in_environment python3 -c '
import kolo_train
info = kolo_train.build_info()
assert not info["mpi_library"], info
print("kolo_train", kolo_train.__version__)'
in_environment kolo-diagnose --version
# Highway's library is in the wheel: without it a warning says that reductions are slow.
if in_environment kolorun -np 1 python3 -c '
import kolo_train, numpy
kolo_train.init()
kolo_train.allreduce(numpy.ones(1 << 20))' 2>&1 | grep Highway; then exit 1; fi
printf '== The wheel works: %d s with its installation\n' "$((EPOCHSECONDS - start))"
