#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Starts ranks with the torchrun of Debian's PyTorch, in a bare Debian 12: see torchrun_jobs.sh.
#
# Usage: tests/hosts/torchrun.sh DIRECTORY   (as root; needs mmdebstrap)
#   DIRECTORY        folder of launcher_program
#   KOLO_BARE_ROOT   keep the root in this folder, for a second run
set -euo pipefail
programs=$(cd "$1" && pwd)
# shellcheck source=tests/package/with_bare_root.sh
source "$(dirname "$0")/../package/with_bare_root.sh"
rm -rf --one-file-system "$root/kolo"
mkdir -p "$root/kolo"
cp "$programs/launcher_program" "$sources/tests/support/expect.sh" \
  "$sources/tests/hosts/torchrun_jobs.sh" "$root/kolo/"
packages_of "$programs/launcher_program" >"$root/kolo/libraries"

cat >"$root/kolo/inside.sh" <<'INSIDE'
set -euo pipefail
cd /kolo
if ! python3 -c 'import torch' 2>/dev/null || ! command -v orted >/dev/null; then
  printf '\n== Installation\n'
  apt-get update -qq
  apt-get install -y -qq --no-install-recommends python3-torch openmpi-bin $(cat libraries) >install.log 2>&1 ||
    { cat install.log; exit 1; }
fi
bash torchrun_jobs.sh python3 .
INSIDE
in_root bash /kolo/inside.sh
