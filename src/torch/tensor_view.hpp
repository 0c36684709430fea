// LibTorch's tensors as Kolo sees them.
#pragma once

#include <torch/types.h>

#include <string>

#include "kolo/tensor.hpp"

namespace kolo::detail {

/// As messages have it: "f32 [64, 3]", with the strides where they are not row-major.
[[nodiscard]] std::string describe(const ::torch::Tensor& tensor);

/// Throws InvalidArgument naming `name` unless the tensor is dense and of a type that Kolo has.
void require_supported(const ::torch::Tensor& tensor, const std::string& name);

/// A view of a supported tensor's memory. It has no gaps; if it is not in row-major order, the
/// view's shape is that of the memory (dimensions by descending stride) with a leading 1, so that
/// it never matches a rank whose tensor is in row-major order.
[[nodiscard]] TensorView view_of(const ::torch::Tensor& tensor);

/// True if the elements of both lie in memory in the same order, without gaps, and are of one type.
[[nodiscard]] bool same_layout(const ::torch::Tensor& a, const ::torch::Tensor& b);

}  // namespace kolo::detail
