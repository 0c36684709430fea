// SPDX-License-Identifier: Apache-2.0
// The CUDA streams of LibTorch, with which Kolo must order its own work. CMake builds either
// `gpu_stream_cuda.cpp` or `gpu_stream_absent.cpp`.
#pragma once

#include <torch/types.h>

#include <optional>
#include <vector>

#include "kolo/cuda.hpp"

namespace kolo::internal {

/// The stream on which LibTorch queues this thread's work; in an autograd hook, the stream of
/// backward. Null if LibTorch or Kolo has no CUDA: GPU tensors are never accepted then.
[[nodiscard]] CUstream_st* gpu_stream(const ::torch::Device& gpu);

/// Like at::empty, for GPU memory that is first written on the thread's current stream
/// (`CudaStreamScope`) and then used on `user`. LibTorch's allocator reuses the memory only when
/// both streams have finished with it.
[[nodiscard]] ::torch::Tensor empty_between_streams(const std::vector<std::int64_t>& sizes,
                                                    const ::torch::TensorOptions& options,
                                                    CUstream_st* user);

/// During its lifetime, operations that this thread submits wait for the work that LibTorch has
/// already queued on the tensor. All tensors of an operation are on one device, so any of them will
/// do. No effect for a CPU tensor.
class StreamOf {
 public:
  explicit StreamOf(const ::torch::Tensor& tensor) {
    if (tensor.is_cuda()) scope_.emplace(gpu_stream(tensor.device()));
  }
  explicit StreamOf(const std::vector<::torch::Tensor>& tensors) {
    if (!tensors.empty() && tensors.front().is_cuda())
      scope_.emplace(gpu_stream(tensors.front().device()));
  }

 private:
  std::optional<CudaStreamScope> scope_{};
};

}  // namespace kolo::internal
