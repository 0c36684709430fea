// LibTorch's tensors as Kolo sees them.
#pragma once

#include <torch/types.h>

#include <string>
#include <vector>

#include "kolo/collectives.hpp"
#include "kolo/tensor.hpp"

namespace kolo::internal {

/// As messages have it: "f32 [64, 3]", with the strides where they are not row-major.
[[nodiscard]] std::string describe(const ::torch::Tensor& tensor);

/// Throws InvalidArgument naming `name` unless the tensor is dense and of a type that Kolo has.
void require_supported(const ::torch::Tensor& tensor, const std::string& name);

/// The tensor's elements in row-major order, to be read: itself or a copy. Throws as
/// `require_supported`.
[[nodiscard]] ::torch::Tensor source_of(const ::torch::Tensor& tensor, const std::string& name);

/// A view of a supported tensor's memory. It has no gaps; if it is not in row-major order, the
/// view's shape is that of the memory (dimensions by descending stride) with a leading 1, so that
/// it never matches a rank whose tensor is in row-major order.
[[nodiscard]] TensorView view_of(const ::torch::Tensor& tensor);

/// Memory for the rows that a gather brings: `result` becomes a tensor of as many, otherwise like
/// `tensor`; a scalar counts as one row. `result` outlives the operation. The allocator keeps
/// `tensor` alive.
[[nodiscard]] Allocator rows_like(const ::torch::Tensor& tensor, ::torch::Tensor& result);

/// What a gather of several tensors takes.
struct GatherGroup {
  std::vector<ConstTensorView> sources;
  std::vector<Allocator> allocators;
};

/// Of the tensors' `source_of`, with `rows_like` for each: `results` has as many elements as
/// `tensors` and outlives the operation, and the allocators keep the sources alive.
[[nodiscard]] GatherGroup gather_group(const std::vector<::torch::Tensor>& tensors,
                                       std::vector<::torch::Tensor>& results,
                                       const std::string& name);

/// To be called after elements were written behind LibTorch's back: a backward that still needs the
/// old ones then fails instead of using the new.
void mark_changed(const ::torch::Tensor& tensor);

/// True if the elements of both lie in memory in the same order, without gaps, and are of one type.
[[nodiscard]] bool same_layout(const ::torch::Tensor& a, const ::torch::Tensor& b);

}  // namespace kolo::internal
