// SPDX-License-Identifier: Apache-2.0
// Backward passes whose gradients are on GPUs that are doubles.
#pragma once

#include <kolo/torch.hpp>  // before LibTorch, as clang 14 needs it

#include <ATen/ops/ones.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <functional>
#include <utility>

#include "gpu_tensors.hpp"

namespace kolo::internal {

/// Runs a function in a backward pass.
struct InBackward : ::torch::autograd::Function<InBackward> {
  static Tensor forward(::torch::autograd::AutogradContext* /*context*/, const Tensor& x) {
    return x.clone();
  }
  static ::torch::autograd::variable_list backward(::torch::autograd::AutogradContext* /*context*/,
                                                   ::torch::autograd::variable_list gradients) {
    action();
    return gradients;
  }
  // Backward of a CPU graph stays on its thread.
  inline static thread_local std::function<void()> action;
};

/// Does what backward does with a parameter on its GPU: LibTorch's engine, built without GPU
/// support, cannot be convinced that there are GPUs.
template <typename Factor>
void accumulate(const Tensor& parameter, Factor factor) {
  const auto accumulator = ::torch::autograd::impl::grad_accumulator(parameter);
  ::torch::autograd::variable_list gradients{filled(parameter.sizes(), [=](std::int64_t k) {
    return factor() * (rank() + static_cast<double>(k));
  })};
  for (const auto& hook : accumulator->pre_hooks()) gradients = (*hook)(gradients);
  parameter.mutable_grad() = std::move(gradients.front());
  for (const auto& hook : accumulator->post_hooks()) static_cast<void>((*hook)({}, {}));
}

/// Runs `action` as a backward pass.
template <typename Action>
void run_backward(Action action) {
  InBackward::action = action;
  InBackward::apply(at::ones({1}).requires_grad_()).sum().backward();
}

inline double once() { return 1.0; }

}  // namespace kolo::internal
