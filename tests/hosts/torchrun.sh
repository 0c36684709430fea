#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Starts ranks by torchrun, that of Debian's PyTorch, in a bare Debian 12: by one agent, two jobs at
# once, restarts, and by two agents as on two hosts.
#
# Usage: tests/hosts/torchrun.sh DIRECTORY   (as root; needs mmdebstrap)
#   DIRECTORY   that has launcher_program
#   KOLO_BARE_ROOT   keep the root in this folder, for a second run
set -euo pipefail
programs=$(cd "$1" && pwd)
# shellcheck source=tests/package/with_bare_root.sh
source "$(dirname "$0")/../package/with_bare_root.sh"
rm -rf --one-file-system "$root/kolo"
mkdir -p "$root/kolo"
cp "$programs/launcher_program" "$sources/tests/support/expect.sh" "$root/kolo/"
packages_of "$programs/launcher_program" >"$root/kolo/libraries"

cat >"$root/kolo/inside.sh" <<'INSIDE'
set -euo pipefail
say() { printf '\n== %s\n' "$*"; }
cd /kolo
if ! python3 -c 'import torch' 2>/dev/null || ! command -v orted >/dev/null; then
  say "Installation"
  apt-get update -qq
  apt-get install -y -qq --no-install-recommends python3-torch openmpi-bin $(cat libraries) >install.log 2>&1 ||
    { cat install.log; exit 1; }
fi
python3 -c 'import torch; print("PyTorch", torch.__version__)'
# PyTorch 1.13 cannot leave the output as it is with Python 3.11.
torchrun=(python3 -m torch.distributed.run --no_python --redirects=1 --tee=1 --log_dir=logs)

# must TITLE STATUS PATTERN COMMAND...
must() {
  say "$1"
  timeout 120 bash expect.sh "${@:2}"
}
for ranks in 1 2 4; do
  must "torchrun, $ranks ranks" any "(rank 0 of $ranks, sum $ranks .*){2}" \
    "${torchrun[@]}" --nproc_per_node=$ranks ./launcher_program
  must "torchrun --standalone, $ranks ranks" any "(rank 0 of $ranks, sum $ranks .*){2}" \
    "${torchrun[@]}" --standalone --nproc_per_node=$ranks ./launcher_program
done
must "Two jobs at once" any "(rank 0 of 2, sum 2 .*){4}" bash -c '
  for job in 1 2; do "$@" & done; wait' bash \
  "${torchrun[@]}" --standalone --nproc_per_node=2 ./launcher_program
must "Restarts" any "(rank 0 of 2, sum 2 .*){2}" \
  "${torchrun[@]}" --standalone --nproc_per_node=2 --max_restarts=1 bash -c '
    if [ -e began.$RANK ]; then exec ./launcher_program; fi; touch began.$RANK; sleep 1; exit 1'
must "Two agents of torchrun" any "(rank 0 of 4, sum 4 .*){2}" bash -c '
  for node in 0 1; do
    "$@" --nnodes=2 --node_rank=$node --master_addr=127.0.0.1 --master_port=29511 --nproc_per_node=2 \
      ./launcher_program 2>&1 &
  done
  wait' bash "${torchrun[@]}"
say "All as expected"
INSIDE
in_root bash /kolo/inside.sh
