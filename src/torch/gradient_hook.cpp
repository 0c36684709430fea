#include <ATen/core/ivalue.h>  // first: see kolo/torch/optimizer.hpp

#include "torch/gradient_hook.hpp"

#include <torch/csrc/autograd/function.h>

#include <memory>

namespace kolo::detail {
namespace {

class Hook : public ::torch::autograd::FunctionPostHook {
 public:
  using Variables = ::torch::autograd::variable_list;

  explicit Hook(std::function<void()> action) : action_(std::move(action)) {}

  Variables operator()(const Variables& outputs, const Variables&) override {
    action_();
    return outputs;
  }

 private:
  std::function<void()> action_;
};

}  // namespace

void GradientHook::attach(const ::torch::Tensor& parameter, std::function<void()> action) {
  if (!parameter.requires_grad()) return;
  auto accumulator = ::torch::autograd::impl::grad_accumulator(parameter);
  if (accumulator == accumulator_) return;
  accumulator->add_post_hook(std::make_unique<Hook>(std::move(action)));
  accumulator_ = std::move(accumulator);
}

}  // namespace kolo::detail
