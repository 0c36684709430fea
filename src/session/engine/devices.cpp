// SPDX-License-Identifier: Apache-2.0
#include "session/engine/devices.hpp"

#include <utility>

#include "kolo/cuda.hpp"
#include "kolo/error.hpp"

namespace kolo::internal::session {

Devices::Devices(backend::Backend& cpu, int rank, const backend::Router::Options& options,
                 GpuLibraries libraries)
    : cpu_(cpu) {
  if (libraries.cuda == nullptr) return;
  gpu_.emplace(std::move(libraries.cuda));
  on_devices_.emplace(cpu_, *gpu_, rank, std::move(libraries.find_nccl), options);
}

std::shared_ptr<const backend::gpu::ReadyMark> Devices::mark(Device device) {
  if (!gpu_) throw InvalidArgument("this build of Kolo is without CUDA");
  return gpu_->mark(device, CudaStreamScope::current());
}

}  // namespace kolo::internal::session
