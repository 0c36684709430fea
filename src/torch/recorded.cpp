#include <ATen/core/ivalue.h>  // first: see kolo/torch/collectives.hpp

#include "torch/recorded.hpp"

#include <torch/csrc/autograd/custom_function.h>

#include <utility>

namespace kolo::detail {
namespace {

using ::torch::autograd::AutogradContext;
using ::torch::autograd::variable_list;

struct Backward : ::torch::CustomClassHolder {
  explicit Backward(TensorFunction function_of_gradient)
      : function(std::move(function_of_gradient)) {}
  TensorFunction function;
};

struct Recorded : ::torch::autograd::Function<Recorded> {
  static ::torch::Tensor forward(AutogradContext* context, const ::torch::Tensor& input,
                                 const TensorFunction& forward, const TensorFunction& backward) {
    context->saved_data["backward"] =
        c10::IValue::make_capsule(c10::make_intrusive<Backward>(backward));
    return forward(input);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto capsule = context->saved_data["backward"].toCapsule();
    const auto& function = static_cast<const Backward&>(*capsule).function;
    return {function(gradients.front()), {}, {}};
  }
};

}  // namespace

::torch::Tensor recorded(const ::torch::Tensor& input, const TensorFunction& forward,
                         const TensorFunction& backward) {
  if (at::GradMode::is_enabled() && input.requires_grad()) {
    return Recorded::apply(input, forward, backward);
  }
  const at::NoGradGuard no_grad;
  return forward(input);
}

}  // namespace kolo::detail
