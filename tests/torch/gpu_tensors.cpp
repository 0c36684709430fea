// SPDX-License-Identifier: Apache-2.0
// Answers to what LibTorch asks of GPUs, by doubles.
#include "gpu_tensors.hpp"

#include <ATen/NativeFunctions.h>
#include <torch/library.h>

#include "fake_gpu_guard.hpp"
#include "torch/gpu_stream.hpp"

namespace kolo::internal {

Tensor empty_between_streams(const std::vector<std::int64_t>& sizes,
                             const ::torch::TensorOptions& /*options*/, CUstream_st* user) {
  EXPECT_EQ(user, user_stream);
  EXPECT_NE(CudaStreamScope::current(), nullptr);
  EXPECT_NE(CudaStreamScope::current(), user_stream);
  ++allocated_between_streams;
  return make_tensor(sizes, /*is_for_kolo=*/true);
}

namespace {

template <typename Schema>
struct Empty;
template <typename Sizes, typename... Options>
struct Empty<Tensor(Sizes, Options...)> {
  static Tensor make(at::IntArrayRef sizes, Options... /*options*/) { return make_tensor(sizes); }
};

/// For contiguous tensors.
Tensor empty_strided(at::IntArrayRef sizes, at::IntArrayRef /*strides*/,
                     c10::optional<at::ScalarType> /*type*/, c10::optional<at::Layout> /*layout*/,
                     c10::optional<at::Device> /*device*/, c10::optional<bool> /*pinned*/) {
  return make_tensor(sizes);
}

Tensor& zero(Tensor& tensor) {
  fill_later(tensor, [](std::int64_t) { return 0.0; });
  return tensor;
}

Tensor& fill(Tensor& tensor, const at::Scalar& value) {
  fill_later(tensor, [number = value.to<double>()](std::int64_t) { return number; });
  return tensor;
}

Tensor& set_storage(Tensor& tensor, c10::Storage storage, std::int64_t offset,
                    at::IntArrayRef sizes, at::IntArrayRef strides) {
  at::TensorImpl& implementation = *tensor.unsafeGetTensorImpl();
  implementation.set_storage_keep_dtype(std::move(storage));
  implementation.set_storage_offset(offset);
  implementation.set_sizes_and_strides(sizes, strides);
  return tensor;
}

C10_REGISTER_GUARD_IMPL(CUDA, FakeGpuGuard);
TORCH_LIBRARY_IMPL(aten, CUDA, library) {
  library.impl("zero_", zero);
  library.impl("fill_.Scalar", fill);
  library.impl("as_strided", at::native::as_strided_tensorimpl);
  library.impl("view", at::native::view);
  library.impl("set_.source_Storage_storage_offset", set_storage);
  library.impl("empty_strided", empty_strided);
  library.impl("empty.memory_format", Empty<at::_ops::empty_memory_format::schema>::make);
}

}  // namespace
}  // namespace kolo::internal
