// SPDX-License-Identifier: Apache-2.0
// The state behind CudaDevice of kolo/cuda.hpp.
#pragma once

#include <memory>
#include <mutex>

#include "backend/gpu/runtime/gpu.hpp"
#include "kolo/cuda.hpp"

namespace kolo {

struct CudaDevice::State {
  /// `runtime` is null in a build without CUDA. Throws InvalidArgument.
  State(std::shared_ptr<internal::backend::gpu::Runtime> runtime, int index);

  /// Copies through pinned memory, on a stream of its own after the work on the current stream, and
  /// waits for the end of the copy. Thread-safe.
  void copy(std::byte* host, std::byte* device, std::size_t bytes,
            internal::backend::gpu::CopyKind kind);

  internal::backend::gpu::Gpu gpu;
  std::mutex mutex{};
};

}  // namespace kolo
