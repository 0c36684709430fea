// A call after backward has accumulated a parameter's gradient.
#pragma once

#include <torch/csrc/autograd/variable.h>
#include <torch/types.h>

#include <functional>
#include <utility>

namespace kolo::detail {

/// The hook of one parameter.
class GradientHook {
 public:
  /// Sees to it that `action` runs, on the thread of backward, once in each backward pass that the
  /// parameter takes part in. To be called again after whatever may have lost the hook: converting
  /// a parameter (`to(dtype)`) gives it a new accumulator, and a frozen one has none.
  void attach(const ::torch::Tensor& parameter, std::function<void()> action);

 private:
  // A std::shared_ptr in LibTorch 1.13 and 2.11, a c10::intrusive_ptr in 2.15.
  using NodePointer =
      decltype(::torch::autograd::impl::grad_accumulator(std::declval<const ::torch::Tensor&>()));

  NodePointer accumulator_{};  // has our hook; the parameter itself holds it weakly
};

}  // namespace kolo::detail
