// Executes a batch of GPU tensors by way of the host: for ranks that share a GPU, for builds
// without NCCL, and for what NCCL cannot do.
#pragma once

#include <cstdint>
#include <memory>

#include "backend/backend.hpp"
#include "backend/cuda/gpu.hpp"

namespace kolo::backend::cuda {

/// Chunks have at least so many bytes: then what each costs on its own is little beside its copies.
inline constexpr std::int64_t least_chunk_bytes = 2 << 20;

/// Device to pinned memory, the CPU's backend, and back, chunk by chunk: a chunk is copied while
/// the one before it is reduced. The steps of one batch overlap with those of the next, too. Takes
/// the parts from 1 on of the batch's sequence. `cpu` and `gpu` outlive the execution.
[[nodiscard]] std::unique_ptr<Execution> make_staged(Gpu& gpu, Backend& cpu, Batch batch, int rank,
                                                     std::int64_t chunk_bytes = least_chunk_bytes);

}  // namespace kolo::backend::cuda
