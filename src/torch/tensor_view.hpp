// SPDX-License-Identifier: Apache-2.0
// Views of the tensors of LibTorch, and the checks that tensors need before an operation.
#pragma once

#include <torch/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "kolo/collectives.hpp"
#include "kolo/tensor.hpp"

namespace kolo::internal {

/// The dtype in LibTorch; none if LibTorch lacks it.
[[nodiscard]] std::optional<at::ScalarType> torch_dtype(DType dtype);

/// Describes a tensor for messages, as in "f32 [64, 3]"; with the strides if the tensor is not in
/// row-major order.
[[nodiscard]] std::string describe(const ::torch::Tensor& tensor);

/// The tensor itself, or a view of a complex tensor's memory as real numbers, with a last dimension
/// of 2. A copy if the memory has the conjugated or negated elements.
[[nodiscard]] ::torch::Tensor real_view(const ::torch::Tensor& tensor);
/// Copies what was written to the `real_view` of the tensor to the tensor, unless it is there.
void put_back_real(const ::torch::Tensor& real, const ::torch::Tensor& tensor);

/// Throws InvalidArgument, naming `name`, unless the tensor is dense and of a dtype that Kolo
/// supports.
void require_supported(const ::torch::Tensor& tensor, const std::string& name);

/// True if elements of a dense tensor may share memory, as after `expand()`.
[[nodiscard]] bool elements_overlap(const ::torch::Tensor& tensor);
/// Calls `use` with each piece of memory that has elements of the tensor without gaps.
void for_each_run(const ::torch::Tensor& tensor,
                  const std::function<void(const std::byte*, std::size_t)>& use);

/// Like `require_supported`, but also refuses tensors whose elements share memory.
void require_writable(const ::torch::Tensor& tensor, const std::string& name);

/// Returns the tensor itself if it is in row-major order, else a copy; to be read only. Throws like
/// `require_supported`.
[[nodiscard]] ::torch::Tensor source_of(const ::torch::Tensor& tensor, const std::string& name);

/// A view of a supported tensor's memory, which has no gaps. If the tensor is not in row-major
/// order, the view's shape is that of the memory (dimensions by descending stride) with a leading
/// 1, so that it never matches a rank whose tensor is in row-major order.
[[nodiscard]] TensorView view_of(const ::torch::Tensor& tensor);

/// An allocator for gathered rows: makes `result` a tensor of that many rows, otherwise like
/// `tensor`. A scalar counts as one row. `result` must outlive the operation. The allocator keeps
/// `tensor` alive.
[[nodiscard]] Allocator rows_like(const ::torch::Tensor& tensor, ::torch::Tensor& result);

/// The arguments of a gather of several tensors.
struct GatherGroup {
  std::vector<ConstTensorView> sources;
  std::vector<Allocator> allocators;
};

/// The arguments for a gather of `tensors`: for each tensor, a view of `source_of` and an allocator
/// from `rows_like`, which stores the result in `results`. `results` has as many elements as
/// `tensors` and must outlive the operation. The allocators keep the sources alive.
[[nodiscard]] GatherGroup gather_group(const std::vector<::torch::Tensor>& tensors,
                                       std::vector<::torch::Tensor>& results,
                                       const std::string& name);

/// Tells LibTorch that Kolo has written to a tensor, which LibTorch does not notice by itself. A
/// backward that still needs the old elements then fails instead of using the new ones.
void mark_changed(const ::torch::Tensor& tensor);

/// The hash of the elements in row-major order. Copies a tensor on a GPU to the host, which waits
/// for the GPU.
[[nodiscard]] std::uint64_t hash_of(const ::torch::Tensor& tensor);
/// True if `hash_of` reads the elements without waiting for a GPU and without an error: they are in
/// CPU memory, and not freed, opaque or in a compressed sparse layout.
[[nodiscard]] bool is_readable(const ::torch::Tensor& tensor);

/// True if both tensors have the same dtype and shape, and the same order of elements in memory,
/// without gaps.
[[nodiscard]] bool same_layout(const ::torch::Tensor& a, const ::torch::Tensor& b);

}  // namespace kolo::internal
