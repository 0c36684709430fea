// Executes a batch of GPU tensors by way of the host: for ranks that share a GPU, for builds
// without NCCL, and for what NCCL cannot do.
#pragma once

#include <memory>

#include "backend/backend.hpp"
#include "backend/cuda/gpu.hpp"

namespace kolo::backend::cuda {

/// Device to pinned memory, the CPU's backend, and back. The steps of one batch overlap with those
/// of the next. Takes part 1 of the batch's sequence. `cpu` and `gpu` outlive the execution.
[[nodiscard]] std::unique_ptr<Execution> make_staged(Gpu& gpu, Backend& cpu, Batch batch, int rank);

}  // namespace kolo::backend::cuda
