#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs a wheel in a bare Debian 12 that has Python but neither a compiler nor an MPI, and trains
# with it on two ranks.
#
# Usage: tests/package/wheel_bare.sh WHEEL   (as root; needs mmdebstrap)
#   KOLO_BARE_ROOT   keep the root in this folder, for a second run
set -euo pipefail
wheel=$(realpath -- "$1")
# shellcheck source=tests/package/with_bare_root.sh
source "$(dirname "$0")/with_bare_root.sh"
mkdir -p "$root/kolo/tests/package" "$root/kolo/examples"
# This host downloads NumPy: the root need not know the certificates of a proxy.
rm -rf "$root/kolo"/*.whl
python3 -m pip download --quiet --only-binary=:all: --python-version 3.11 --dest "$root/kolo" "$wheel"
cp -r "$sources/examples/python_trainer" "$root/kolo/examples/"
cp "$sources/tests/package/wheel.sh" "$root/kolo/tests/package/"
cat >"$root/kolo/inside.sh" <<'INSIDE'
set -euo pipefail
apt-get update -qq
apt-get install -y -qq --no-install-recommends python3-venv >/kolo/install.log 2>&1 ||
  { cat /kolo/install.log; exit 1; }
for program in c++ g++ cc mpirun; do
  if command -v "$program"; then exit 1; fi
done
PIP_NO_INDEX=1 PIP_FIND_LINKS=/kolo bash /kolo/tests/package/wheel.sh /kolo/kolo_train-*.whl
INSIDE
in_root bash /kolo/inside.sh
