// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/ivalue.h>  // first: see kolo/torch/optimizer.hpp

#include "torch/optimizer/gradient_hook.hpp"

#include <torch/csrc/autograd/function.h>

namespace kolo::internal {
namespace {

using Variables = ::torch::autograd::variable_list;

// True if another tensor uses the gradient's memory. Autograd keeps the incoming gradient as the
// parameter's own if nothing else refers to that tensor object. But another view may have the same
// memory, and backward may still need it while this gradient is reduced in place.
bool shares_memory(const ::torch::Tensor& gradient) {
  if (!gradient.defined() || gradient.layout() != at::kStrided) return false;
  const bool is_view = gradient.is_view();  // keeps its base alive, a second use of the storage
  if (is_view && gradient._base().use_count() > 1) return true;
  return gradient.storage().use_count() > (is_view ? 2 : 1);
}

class BeforeHook : public ::torch::autograd::FunctionPreHook {
 public:
  BeforeHook(std::weak_ptr<GradientListener> listener, std::size_t slot)
      : listener_(std::move(listener)), slot_(slot) {}

  Variables operator()(const Variables& gradients) override {
    const auto listener = listener_.lock();
    if (!listener || !listener->before_accumulation(slot_) || !shares_memory(gradients.front()))
      return gradients;
    const at::NoGradGuard no_grad;
    return {gradients.front().clone()};
  }

  /// The listener, if it lives and owns the parameter.
  [[nodiscard]] std::shared_ptr<GradientListener> owner() const {
    auto listener = listener_.lock();
    return listener != nullptr && listener->owns(slot_) ? listener : nullptr;
  }

 private:
  std::weak_ptr<GradientListener> listener_;
  std::size_t slot_;
};

class AfterHook : public ::torch::autograd::FunctionPostHook {
 public:
  AfterHook(std::weak_ptr<GradientListener> listener, std::size_t slot)
      : listener_(std::move(listener)), slot_(slot) {}

  Variables operator()(const Variables& outputs, const Variables&) override {
    if (const auto listener = listener_.lock()) listener->after_accumulation(slot_);
    return outputs;
  }

 private:
  std::weak_ptr<GradientListener> listener_;
  std::size_t slot_;
};

}  // namespace

void GradientHook::attach(const ::torch::Tensor& parameter,
                          const std::weak_ptr<GradientListener>& listener, std::size_t slot) {
  if (!is_missing(parameter)) return;  // a second pair of hooks would count each gradient twice
  auto accumulator = ::torch::autograd::impl::grad_accumulator(parameter);
  accumulator->add_pre_hook(std::make_unique<BeforeHook>(listener, slot));
  accumulator->add_post_hook(std::make_unique<AfterHook>(listener, slot));
  accumulator_ = std::move(accumulator);
}

bool GradientHook::is_missing(const ::torch::Tensor& parameter) const {
  // A frozen parameter is no leaf after the program has written a computed value into it.
  return parameter.requires_grad() && parameter.is_leaf() &&
         (!accumulator_ ||
          ::torch::autograd::impl::try_get_grad_accumulator(parameter) != accumulator_);
}

std::shared_ptr<GradientListener> GradientHook::other_owner(const ::torch::Tensor& parameter,
                                                            const GradientListener& self) {
  if (!parameter.requires_grad() || !parameter.is_leaf()) return nullptr;
  const auto accumulator = ::torch::autograd::impl::grad_accumulator(parameter);
  for (const auto& hook : accumulator->pre_hooks()) {
    const auto* before = dynamic_cast<const BeforeHook*>(hook.get());
    if (before == nullptr) continue;
    auto owner = before->owner();
    if (owner != nullptr && owner.get() != &self) return owner;
  }
  return nullptr;
}

}  // namespace kolo::internal
