#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# On a machine with a GPU: builds, runs what is skipped elsewhere, and measures what the GPU path
# costs. In under ten minutes on 16 cores. Goes on after a step that fails; the last lines say which.
#
# Usage: check.sh [--dry-run]
#   --dry-run   only say what would be done
# Environment:
#   KOLO_GPU_KIT     what tests/gpu/make_kit.sh made, where Open MPI and the packages are missing
#   KOLO_TORCH_WHEEL LibTorch with CUDA: the folder `torch` of PyTorch's wheel; python3 is asked for
#                    its own. Without one the CIFAR-10 example is left out.
set -uo pipefail
cd "$(dirname "$0")/../.."

dry_run=0
[[ ${1:-} != --dry-run ]] || dry_run=1
if ((!dry_run)); then
  if ! command -v nvidia-smi >/dev/null; then
    echo "gpu-check: there is no GPU here: nvidia-smi is not found" >&2
    exit 1
  fi
  if ! nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader; then
    echo "gpu-check: there is no GPU here that can be used: nvidia-smi fails" >&2
    exit 1
  fi
fi

build=build/gpu
failed=()

# step NAME SECONDS COMMAND...
step() {
  local name=$1 limit=$2 start=$SECONDS status=0
  shift 2
  printf '\n== %s: %s\n' "$name" "$*"
  ((!dry_run)) || return 0
  timeout --kill-after=5 "$limit" "$@" || status=$?
  printf '== %s: status %s, %s s\n' "$name" "$status" "$((SECONDS - start))"
  ((status == 0)) || failed+=("$name")
  return "$status"
}

finish() {
  printf '\n== %s s in all\n' "$SECONDS"
  if ((${#failed[@]})); then
    printf 'gpu-check: FAILED: %s\n' "${failed[*]}"
    exit 1
  fi
  ((!dry_run)) || { echo "gpu-check: nothing was run"; exit 0; }
  echo "gpu-check: all is well"
  exit 0
}

options=(-DCMAKE_BUILD_TYPE=Release -DKOLO_WITH_CUDA=ON -DKOLO_WITH_NCCL=ON)
mpirun=mpirun
if [[ -n ${KOLO_GPU_KIT:-} ]]; then
  kit=$(realpath "$KOLO_GPU_KIT")
  options+=("-DCMAKE_PREFIX_PATH=$kit/usr" "-DMPI_CXX_COMPILER=$kit/mpi/bin/mpicxx"
    "-DMPIEXEC_EXECUTABLE=$kit/mpi/bin/mpirun")
  export LD_LIBRARY_PATH="$kit/usr/lib/x86_64-linux-gnu${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
  # shellcheck source=/dev/null
  . "$kit/mpi/env.sh"
  mpirun=$kit/mpi/bin/mpirun
fi
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none OMP_NUM_THREADS=1

wheel=${KOLO_TORCH_WHEEL:-$(python3 -c '
import os, torch
if torch.version.cuda: print(os.path.dirname(torch.__file__))' 2>/dev/null)}
targets=(unit.gpu_card mpi.gpu kolo-perf bench-gpu)
if [[ -n $wheel ]]; then
  options+=(-DKOLO_WITH_TORCH=ON "-DTorch_DIR=$PWD/cmake/torch-wheel" "-DKOLO_TORCH_WHEEL=$wheel")
  targets+=(cifar10)
else
  options+=(-DKOLO_WITH_TORCH=OFF)
fi

step configure 60 cmake -S . -B "$build" -G Ninja "${options[@]}" || finish
step build 400 cmake --build "$build" --target "${targets[@]}" || finish

bin=$build/bin
step card 60 "$bin/unit.gpu_card"
for ranks in 1 2 4; do
  step "session-$ranks" 60 "$mpirun" -np "$ranks" --timeout 50 "$bin/mpi.gpu"
done

# Every result is verified. One rank uses NCCL; more share the GPU, by way of the host.
operations=allreduce,allgather,broadcast,alltoall,reducescatter
for ranks in 1 2 4; do
  step "verify-$ranks" 60 "$mpirun" -np "$ranks" --timeout 50 "$bin/kolo-perf" --device cuda \
    --operation "$operations" --sizes 4,1000,64K,5M --dtype f32,f64,f16,bf16,i16,i32,u8 \
    --iterations 4 --warmup 1 --csv
  step "gradients-$ranks" 60 "$mpirun" -np "$ranks" --timeout 50 "$bin/kolo-perf" --device cuda \
    --gradients resnet50,1000x1KB --iterations 10
done

if command -v compute-sanitizer >/dev/null; then
  for tool in memcheck racecheck initcheck; do
    step "sanitizer-$tool" 60 compute-sanitizer --tool "$tool" --error-exitcode 1 \
      "$bin/unit.gpu_card" --gtest_filter='*TheKernel*'
  done
else
  printf '\n== There is no compute-sanitizer: the kernel was not run under it\n'
fi

step bench 60 "$bin/bench-gpu"

if [[ -n $wheel ]]; then
  for ranks in 1 2; do
    step "cifar10-$ranks" 90 "$mpirun" -np "$ranks" --timeout 80 "$bin/cifar10" --device cuda \
      --epochs 3 --stand-in-size 4000
  done
else
  printf '\n== There is no LibTorch with CUDA: the CIFAR-10 example was left out\n'
fi
finish
