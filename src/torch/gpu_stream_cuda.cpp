// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/ivalue.h>  // first: see kolo/torch/collectives.hpp

#include <ATen/ops/empty.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "torch/gpu_stream.hpp"

namespace kolo::internal {

CUstream_st* gpu_stream(const ::torch::Device& gpu) {
  return c10::cuda::getCurrentCUDAStream(gpu.index()).stream();
}

::torch::Tensor empty_between_streams(const std::vector<std::int64_t>& sizes,
                                      const ::torch::TensorOptions& options, CUstream_st* user) {
  const c10::DeviceIndex index = options.device().index();
  const c10::cuda::CUDAStreamGuard guard(
      c10::cuda::getStreamFromExternal(CudaStreamScope::current(), index));
  ::torch::Tensor made = at::empty(sizes, options);
  c10::cuda::CUDACachingAllocator::recordStream(made.storage().data_ptr(),
                                                c10::cuda::getStreamFromExternal(user, index));
  return made;
}

}  // namespace kolo::internal
