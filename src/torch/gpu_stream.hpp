// SPDX-License-Identifier: Apache-2.0
// Memory of LibTorch that two CUDA streams use. CMake builds either `gpu_stream_cuda.cpp`, which
// also tells Kolo which stream of LibTorch is current, or `gpu_stream_absent.cpp`.
#pragma once

#include <torch/types.h>

#include <vector>

#include "kolo/cuda.hpp"

namespace kolo::internal {

/// Like at::empty, for GPU memory that is first written on the thread's current stream
/// (`CudaStreamScope`) and then used on `user`. LibTorch's allocator reuses the memory only when
/// both streams have finished with it.
[[nodiscard]] ::torch::Tensor empty_between_streams(const std::vector<std::int64_t>& sizes,
                                                    const ::torch::TensorOptions& options,
                                                    CUstream_st* user);

}  // namespace kolo::internal
