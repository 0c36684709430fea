// The streams of GPUs on which LibTorch works, and which Kolo must know about.
// `gpu_stream_cuda.cpp` or `gpu_stream_absent.cpp` has what is LibTorch's; CMake chooses.
#pragma once

#include <torch/types.h>

#include <optional>
#include <vector>

#include "kolo/cuda.hpp"

namespace kolo::detail {

/// The stream that this thread's work on the GPU is given to: in a hook of autograd's, that of
/// backward. Null where LibTorch or Kolo is without CUDA: no such tensor is ever accepted there.
[[nodiscard]] CUstream_st* gpu_stream(const ::torch::Device& gpu);

/// As at::empty, for memory on a GPU that is first written on the thread's current stream
/// (`CudaStreamScope`), and used on `user` from then on: so the memory is given out again only when
/// both are done with it.
[[nodiscard]] ::torch::Tensor empty_between_streams(const std::vector<std::int64_t>& sizes,
                                                    const ::torch::TensorOptions& options,
                                                    CUstream_st* user);

/// While it lives, what this thread submits waits for what LibTorch was told to do with the tensor
/// before. Tensors are on one device: any of an operation's will do. Nothing for one on the CPU.
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

}  // namespace kolo::detail
