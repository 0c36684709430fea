// Operations that autograd does not know.
#pragma once

#include <torch/types.h>

#include <functional>

namespace kolo::detail {

using TensorFunction = std::function<::torch::Tensor(const ::torch::Tensor&)>;

/// `forward(input)`, called with gradients off. If the input requires a gradient it is recorded:
/// `backward` makes the input's gradient of the result's. Where that is itself recorded, so is the
/// second derivative.
[[nodiscard]] ::torch::Tensor recorded(const ::torch::Tensor& input, const TensorFunction& forward,
                                       const TensorFunction& backward);

}  // namespace kolo::detail
