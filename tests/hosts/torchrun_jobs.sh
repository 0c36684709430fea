#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Starts ranks with the torchrun of a PyTorch: with one agent, two jobs at once, restarts, and with
# two agents as on two hosts.
#
# Usage: torchrun_jobs.sh PYTHON DIRECTORY
#   PYTHON      the Python of an environment with PyTorch
#   DIRECTORY   folder of launcher_program
set -euo pipefail
python=$1
program=$(cd "$2" && pwd)/launcher_program
export program
here=$(cd "$(dirname "$0")" && pwd)
expect=$here/expect.sh
[[ -e $expect ]] || expect=$here/../support/expect.sh
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"
say() { printf '\n== %s\n' "$*"; }

"$python" -c 'import torch; print("PyTorch", torch.__version__)'
# PyTorch 1.13 cannot leave the output as it is with Python 3.11.
torchrun=("$python" -m torch.distributed.run --no_python --redirects=1 --tee=1 --log_dir=logs)

# must TITLE STATUS PATTERN COMMAND...
must() {
  say "$1"
  timeout 120 bash "$expect" "${@:2}"
}
for ranks in 1 2 4; do
  must "torchrun, $ranks ranks" any "(rank 0 of $ranks, sum $ranks .*){2}" \
    "${torchrun[@]}" --nproc_per_node=$ranks "$program"
  must "torchrun --standalone, $ranks ranks" any "(rank 0 of $ranks, sum $ranks .*){2}" \
    "${torchrun[@]}" --standalone --nproc_per_node=$ranks "$program"
done
must "Two jobs at once" any "(rank 0 of 2, sum 2 .*){4}" bash -c '
  for job in 1 2; do "$@" & done; wait' bash \
  "${torchrun[@]}" --standalone --nproc_per_node=2 "$program"
must "Restarts" any "(rank 0 of 2, sum 2 .*){2}" \
  "${torchrun[@]}" --standalone --nproc_per_node=2 --max_restarts=1 bash -c '
    if [ -e began.$RANK ]; then exec "$program"; fi; touch began.$RANK; sleep 1; exit 1'
must "Two agents of torchrun" any "(rank 0 of 4, sum 4 .*){2}" bash -c '
  for node in 0 1; do
    "$@" --nnodes=2 --node_rank=$node --master_addr=127.0.0.1 --master_port=29511 --nproc_per_node=2 \
      "$program" 2>&1 &
  done
  wait' bash "${torchrun[@]}"
say "All as expected"
