// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/ivalue.h>  // first: see kolo/torch/collectives.hpp

#include <ATen/ops/empty.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "torch/gpu_stream.hpp"

namespace kolo::internal {
namespace {

// In an autograd hook, the current stream is that of backward; in a callback at the end of
// backward, that of the caller. LibTorch never destroys its streams.
[[maybe_unused]] const bool kolo_knows_streams = [] {
  detail::set_framework_stream([](int device) {
    return c10::cuda::getCurrentCUDAStream(static_cast<c10::DeviceIndex>(device)).stream();
  });
  return true;
}();

}  // namespace

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
