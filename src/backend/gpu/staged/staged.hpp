// SPDX-License-Identifier: Apache-2.0
// Executes a batch of GPU tensors through host memory: for ranks that share a GPU, for builds
// without NCCL, and for batches that NCCL does not support.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "backend/backend.hpp"
#include "backend/gpu/runtime/gpu.hpp"

namespace kolo::internal::backend::gpu {

/// Minimum size of a chunk; its fixed cost is then small compared with its copies.
inline constexpr std::int64_t min_chunk_bytes = 2 << 20;

/// Moves a batch from the device to pinned memory, through the CPU's backend, and back, chunk by
/// chunk: a chunk is copied while the previous one is reduced. Consecutive batches overlap in the
/// same way. Uses the parts from 1 on of the batch's sequence. `cpu` and `gpu` must outlive the
/// execution.
[[nodiscard]] std::unique_ptr<Execution> make_staged(Gpu& gpu, Backend& cpu, Batch batch, int rank,
                                                     std::int64_t chunk_bytes = min_chunk_bytes);

/// Consecutive elements of a tensor that travel together.
struct ElementRange {
  const BatchTensor* tensor = nullptr;
  std::int64_t first = 0;
  std::int64_t elements = 0;
};

/// Divides a batch whose elements are independent into chunks of about the same size, at least
/// `min_bytes`, and at most as many as a batch has parts. The same on all ranks. Any other batch
/// forms one chunk.
[[nodiscard]] std::vector<std::vector<ElementRange>> cut_into_chunks(const Batch& batch,
                                                                     std::int64_t min_bytes);

}  // namespace kolo::internal::backend::gpu
