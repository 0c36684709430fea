// SPDX-License-Identifier: Apache-2.0
// Hooks around the accumulation of one parameter's gradient.
#pragma once

#include <torch/csrc/autograd/variable.h>
#include <torch/types.h>

#include <cstddef>
#include <memory>
#include <utility>

namespace kolo::internal {

/// Called by backward, on its thread, for each pass that involves the parameter.
class GradientListener {
 public:
  virtual ~GradientListener() = default;
  /// Returns true if the parameter has no gradient, so that autograd may keep the incoming one.
  virtual bool before_accumulation(std::size_t slot) = 0;
  virtual void after_accumulation(std::size_t slot) = 0;
  /// False if this listener leaves the parameter to another one.
  [[nodiscard]] virtual bool owns(std::size_t slot) const = 0;
};

/// The hooks of one parameter.
class GradientHook {
 public:
  /// Call it again whenever the hooks may be lost: converting a parameter (`to(dtype)`) gives it a
  /// new accumulator, and a frozen parameter has none. No effect while the hooks are in place. The
  /// hooks hold a weak pointer, because the autograd graph owns them and may outlive the listener.
  void attach(const ::torch::Tensor& parameter, const std::weak_ptr<GradientListener>& listener,
              std::size_t slot);
  /// True if the parameter needs the hooks and does not have them.
  [[nodiscard]] bool is_missing(const ::torch::Tensor& parameter) const;
  /// The node that accumulates the parameter's gradient; null before `attach`.
  [[nodiscard]] const ::torch::autograd::Node* accumulator() const { return accumulator_.get(); }
  /// True if the parameter has no references but this hook's and `others` further ones. No gradient
  /// can accumulate for it then.
  [[nodiscard]] bool is_unused(const ::torch::Tensor& parameter, std::size_t others) const {
    if (!accumulator_) return parameter.use_count() == others;
    return accumulator_.use_count() == 1 && parameter.use_count() == others + 1;
  }

  /// The listener, other than `self`, that owns the parameter; null if there is none.
  [[nodiscard]] static std::shared_ptr<GradientListener> other_owner(
      const ::torch::Tensor& parameter, const GradientListener& self);

 private:
  // std::shared_ptr in LibTorch 1.13 and 2.11, c10::intrusive_ptr in 2.15.
  using NodePointer =
      decltype(::torch::autograd::impl::grad_accumulator(std::declval<const ::torch::Tensor&>()));

  NodePointer accumulator_{};  // owns the hooks; the parameter holds it only weakly
};

}  // namespace kolo::internal
