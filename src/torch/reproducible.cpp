// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/ivalue.h>  // first: see kolo/torch/optimizer.hpp

#include "kolo/torch/reproducible.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <string>
#include <utility>

#include "kolo/error.hpp"
#include "torch/tensor_view.hpp"
#include "training/reproducible/exact_reduction.hpp"

namespace kolo {

using namespace internal;
using ::torch::Tensor;

struct ReproducibleBackward::State {
  NamedParameters parameters;
  ExactReduction reduction;  // its sums: the gradients, then the loss

  void add(const Tensor& loss);
  void set_gradient(std::size_t i);
};

namespace {

void require_parameters(const NamedParameters& parameters) {
  for (const auto& [name, tensor] : parameters) {
    require_supported(tensor, name);
    if (!tensor.is_floating_point())
      throw InvalidArgument("ReproducibleBackward: '" + name + "' is " + describe(tensor) +
                                ", but only floating-point parameters have gradients to add",
                            name);
  }
}

}  // namespace

ReproducibleBackward::ReproducibleBackward(const NamedParameters& parameters,
                                           const ReproducibleOptions& options) {
  require_parameters(parameters);
  state_ = std::make_unique<State>(State{parameters, ExactReduction(options)});
  for (const auto& [name, tensor] : parameters) state_->reduction.expect(name, tensor.numel());
  state_->reduction.expect("loss of the shards", 1);
}
ReproducibleBackward::ReproducibleBackward(ReproducibleBackward&&) noexcept = default;
ReproducibleBackward& ReproducibleBackward::operator=(ReproducibleBackward&&) noexcept = default;
ReproducibleBackward::~ReproducibleBackward() = default;

std::vector<int> ReproducibleBackward::own_shards() const { return state_->reduction.own_shards(); }

// Adds the gradients of a shard, in row-major order.
void ReproducibleBackward::State::add(const Tensor& loss) {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const Tensor& gradient = parameters[i].second.grad();
    if (!gradient.defined()) continue;
    const Tensor dense = gradient.layout() == at::kStrided ? gradient : gradient.to_dense();
    reduction.add(i, view_of(dense.to(at::kCPU).contiguous()));
  }
  reduction.add(parameters.size(), view_of(loss.to(at::kCPU).contiguous()));
}

void ReproducibleBackward::State::set_gradient(std::size_t i) {
  const Tensor& parameter = parameters[i].second;
  if (!reduction.is_used(i)) {
    parameter.mutable_grad().reset();
    return;
  }
  const Tensor mean = at::empty(parameter.sizes(), parameter.options().device(at::kCPU));
  reduction.write_mean(i, view_of(mean));
  const Tensor gradient = at::empty_like(parameter);
  gradient.copy_(mean);
  parameter.mutable_grad() = gradient;
}

double ReproducibleBackward::run(const std::function<Tensor(int shard)>& loss) {
  State& state = *state_;
  state.reduction.run([&](int shard) {
    for (const auto& [name, parameter] : state.parameters) parameter.mutable_grad().reset();
    const Tensor result = loss(shard);
    if (!result.defined() || result.numel() != 1 || !result.is_floating_point())
      throw InvalidArgument("ReproducibleBackward: the loss of shard " + std::to_string(shard) +
                            " is " + (result.defined() ? describe(result) : "undefined") +
                            ", but must be one floating-point number");
    result.backward();
    state.add(result.detach());
  });
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < state.parameters.size(); ++i) state.set_gradient(i);
  double mean = 0;
  state.reduction.write_mean(state.parameters.size(), mean);
  return mean;
}

}  // namespace kolo
