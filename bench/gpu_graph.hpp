// SPDX-License-Identifier: Apache-2.0
// CUDA graphs of training steps.
#pragma once

#include <ATen/core/ivalue.h>  // before LibTorch, as clang 14 needs it

#include <torch/types.h>

#include <functional>

namespace graphs {

/// False without a LibTorch that has CUDA graphs.
[[nodiscard]] bool exist();

/// Runs `prepare` and `work` several times on a stream of their own, within a GraphWarmUp,
/// `prepare` once more, and captures `work` there. Returns the graph's replay on the current
/// stream. On a CPU nothing is captured: the result calls both. Throws if `work` cannot be
/// captured.
[[nodiscard]] std::function<void()> capture(const torch::Device& device,
                                            const std::function<void()>& prepare,
                                            const std::function<void()>& work);

}  // namespace graphs
