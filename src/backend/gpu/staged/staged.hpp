// SPDX-License-Identifier: Apache-2.0
// Executes a batch of GPU tensors through the memory of the host: for ranks that share a GPU, for
// builds without NCCL, and for batches that NCCL does not support.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "backend/backend.hpp"
#include "backend/gpu/runtime/gpu.hpp"

namespace kolo::internal::backend::gpu {

/// Chunks have at least so many bytes, so that their fixed cost is small beside their copies.
inline constexpr std::int64_t min_chunk_bytes = 2 << 20;

/// Device to pinned memory, the CPU's backend, and back, chunk by chunk: a chunk is copied while
/// the one before it is reduced. The steps of one batch overlap with those of the next, too. Takes
/// the parts from 1 on of the batch's sequence. `cpu` and `gpu` outlive the execution.
[[nodiscard]] std::unique_ptr<Execution> make_staged(Gpu& gpu, Backend& cpu, Batch batch, int rank,
                                                     std::int64_t chunk_bytes = min_chunk_bytes);

/// Elements of a tensor that travel together.
struct ElementRange {
  const BatchTensor* tensor = nullptr;
  std::int64_t first = 0;
  std::int64_t elements = 0;
};

/// Cuts a batch whose elements are independent into chunks of about the same size, at least
/// `min_bytes`, and at most as many as a batch has parts. The same on all ranks. Any other batch is
/// one chunk.
[[nodiscard]] std::vector<std::vector<ElementRange>> cut_into_chunks(const Batch& batch,
                                                                     std::int64_t min_bytes);

}  // namespace kolo::internal::backend::gpu
