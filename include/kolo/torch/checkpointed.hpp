// SPDX-License-Identifier: Apache-2.0
// Gradient checkpointing: backward computes a part of the model again instead of keeping its
// intermediate results.
#pragma once

// clang 14 can read LibTorch 1.13 in C++20 only if this comes first.
#include <ATen/core/ivalue.h>

#include <torch/types.h>

#include <functional>
#include <vector>

#include "kolo/export.hpp"

namespace kolo {

/// Calls `function` with `inputs`, and returns its results without what autograd would keep of it.
/// Backward calls the function again, for the inputs' gradients and those of all parameters that
/// the function uses. This needs less memory, and about a third more time:
///
///     for (auto& layer : layers)
///       x = kolo::checkpointed([layer](const torch::Tensor& in) mutable { return layer(in); }, x);
///
/// The second call has the random numbers and the Autocast setting of the first, so that dropout
/// drops the same elements, and the random numbers that follow are those of a program without
/// `checkpointed`. The function must compute the same in both calls, and its parameters must not
/// change in between. It may reduce, as in SyncBatchNorm, if all ranks call it alike. Statistics of
/// a batch normalization inside are updated twice.
///
/// All accumulations belong to the pass of the outer backward(), so ranks may use the same
/// parameters unequally often, as in recurrent layers with sequences of different lengths.
/// torch::autograd::grad, and `backward()` with inputs or with `create_graph`, throw
/// InvalidArgument. With gradients disabled, only the function is called. Needs a session.
/// Thread-safe if the function is. While a function that draws random numbers runs, no other thread
/// may draw from the same generator.
[[nodiscard]] KOLO_EXPORT std::vector<::torch::Tensor> checkpointed(
    const std::function<std::vector<::torch::Tensor>(const std::vector<::torch::Tensor>&)>&
        function,
    const std::vector<::torch::Tensor>& inputs);

/// The same for a function of one tensor.
[[nodiscard]] KOLO_EXPORT ::torch::Tensor checkpointed(
    const std::function<::torch::Tensor(const ::torch::Tensor&)>& function,
    const ::torch::Tensor& input);

}  // namespace kolo
