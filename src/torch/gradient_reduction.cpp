// SPDX-License-Identifier: Apache-2.0
// Submits gradients for reduction and receives the results.
#include <ATen/core/ivalue.h>  // first: see kolo/torch/optimizer.hpp

#include <ATen/ops/_sparse_coo_tensor_unsafe.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <exception>

#include "kolo/error.hpp"
#include "torch/gpu_stream.hpp"
#include "torch/gradient_state.hpp"
#include "torch/tensor_view.hpp"

namespace kolo::detail {

using namespace internal;

void GradientReducer::State::on_gradient(std::size_t index) {
  // Backward runs one thread for CPU parameters and one per GPU, so hooks run concurrently. Their
  // order may differ between ranks; operations are matched by name.
  const std::lock_guard lock(hooks);
  Parameter& parameter = parameters[index];
  count_pass(parameter);
  const bool is_last = parameter.passes == options.backward_passes_per_step;
  // `submit_missing` creates gradients that stay undefined.
  if (!is_member || !is_last || !parameter.tensor.grad().defined()) return;
  require_reducible(parameter);
  parameter.ready = true;
  if (!parameter.group || is_ready(groups[*parameter.group])) submit(index, 1.0);
}

void GradientReducer::State::submit_missing() {
  const auto is_missing = [](const Parameter& parameter) {
    return !parameter.submitted && parameter.tensor.requires_grad();
  };
  // All gradients are checked before any is submitted, so that the call can be repeated after an
  // exception.
  for (const Parameter& parameter : parameters) {
    if (is_missing(parameter)) require_reducible(parameter);
  }
  // Hooks submit only in the last pass, where no correction is needed.
  const double correction = mean_correction();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (is_missing(parameters[i])) submit(i, correction);
  }
}

bool GradientReducer::State::is_ready(const GradientGroup& group) const {
  return std::all_of(group.indices.begin(), group.indices.end(), [&](std::size_t i) {
    return parameters[i].ready || !parameters[i].tensor.requires_grad();
  });
}

std::string GradientReducer::State::operation_name(const std::string& name) const {
  return std::to_string(number) + "." + name;
}

// A missing gradient is assumed to be of the same kind as the parameter's last gradient: other
// ranks may have it, and all ranks must submit the same operation.
bool GradientReducer::State::travels_sparse(const Parameter& parameter) const {
  if (options.sparse_as_dense) return false;
  const ::torch::Tensor& gradient = parameter.tensor.grad();
  if (!gradient.defined()) return parameter.sparse_dims > 0;
  return gradient.layout() == at::kSparse && gradient.sparse_dim() > 0;
}

void GradientReducer::State::require_reducible(const Parameter& parameter) const {
  const ::torch::Tensor& gradient = parameter.tensor.grad();
  const auto refuse = [&](const std::string& reason) {
    throw InvalidArgument(
        "'" + parameter.name + "': the gradient is sparse, and " + reason + ". Set sparse_as_dense",
        parameter.name);
  };
  if (travels_sparse(parameter)) {
    if (parameter.group) refuse("sparse gradients cannot be in groups");
    if (options.op == ReduceOp::adasum) refuse("adasum needs dense gradients");
  }
  if (gradient.defined() && gradient.layout() != at::kSparse) {
    require_supported(gradient, parameter.name);
  }
}

// Gradients are reduced in the memory order of their parameters, which was agreed at construction.
// Autograd usually keeps them in that order. A gradient in another order is copied, because its
// order is this rank's own: an element-wise sum in memory would mix up elements.
void GradientReducer::State::prepare(Parameter& parameter, double correction) const {
  ::torch::Tensor& gradient = parameter.tensor.mutable_grad();
  if (!gradient.defined()) gradient = at::zeros_like(parameter.tensor);
  if (gradient.layout() == at::kSparse) gradient = gradient.to_dense();
  require_supported(gradient, parameter.name);
  if (correction != 1.0) gradient.mul_(correction);
  parameter.gradient = gradient;
  parameter.buffer = gradient;
  if (!same_layout(gradient, parameter.tensor)) {
    parameter.buffer = at::empty_like(parameter.tensor);
    parameter.buffer.copy_(gradient);
  }
  parameter.sparse_dims = 0;
}

void GradientReducer::State::submit(std::size_t index, double correction) {
  const Parameter& parameter = parameters[index];
  if (parameter.group) {
    submit_group(groups[*parameter.group], correction);
  } else if (travels_sparse(parameter)) {
    submit_sparse(index, correction);
  } else {
    submit_group({parameter.name, {index}}, correction);
  }
}

void GradientReducer::State::submit_group(const GradientGroup& group, double correction) {
  const at::NoGradGuard no_grad;
  PendingReduction reduction;
  std::vector<TensorView> views;
  for (const std::size_t i : group.indices) {
    if (!parameters[i].tensor.requires_grad()) continue;
    prepare(parameters[i], correction);
    views.push_back(view_of(parameters[i].buffer));
    reduction.indices.push_back(i);
  }
  const GroupedAllreduceOptions allreduce{.name = operation_name(group.name),
                                          .op = options.op,
                                          .prescale = prescale(options),
                                          .postscale = postscale(options),
                                          .compression = options.compression,
                                          .process_set = options.process_set};
  // Backward may still be computing the gradients on the GPU: the operation waits on its stream.
  const StreamOf stream(parameters[group.indices.front()].tensor);
  // The step is part of the operation, so a rank at another step gets Mismatch instead of a sum of
  // gradients of different steps.
  reduction.future = call_async(GroupedAllreduceCall{views, allreduce, step.of_operation()});
  step.begin();
  for (const std::size_t i : reduction.indices) parameters[i].submitted = true;
  pending.push_back(std::move(reduction));
}

void GradientReducer::State::submit_sparse(std::size_t index, double correction) {
  const at::NoGradGuard no_grad;
  Parameter& parameter = parameters[index];
  ::torch::Tensor gradient = parameter.tensor.grad();
  if (!gradient.defined()) {
    gradient = at::zeros_like(parameter.tensor, parameter.tensor.options().layout(at::kSparse));
  }
  // An empty gradient does not show the number of sparse dimensions, so the previous number is
  // kept.
  if (gradient._nnz() > 0 || parameter.sparse_dims == 0) {
    parameter.sparse_dims = gradient.sparse_dim();
  }
  PendingReduction reduction{.indices = {index}};
  reduction.sparse = std::make_unique<SparseReduction>(
      gradient, parameter.sparse_dims,
      SparseReduction::Options{operation_name(parameter.name), step.of_operation(),
                               options.process_set});
  step.begin();
  reduction.sparse_scale = correction * prescale(options) * postscale(options);
  if (options.op == ReduceOp::average) reduction.sparse_scale /= options.process_set.size();
  pending.push_back(std::move(reduction));
  parameter.submitted = true;
}

void GradientReducer::State::finish(PendingReduction& reduction) {
  if (reduction.sparse) {
    ::torch::Tensor& gradient = parameters[reduction.indices.front()].tensor.mutable_grad();
    gradient = reduction.sparse->finish(reduction.sparse_scale);
    return;
  }
  reduction.future.get();
  for (const std::size_t i : reduction.indices) {
    Parameter& parameter = parameters[i];
    if (parameter.buffer.is_same(parameter.gradient)) {
      mark_changed(parameter.gradient);  // Kolo wrote to it, unnoticed by autograd
    } else {
      parameter.gradient.copy_(parameter.buffer);
    }
  }
}

void GradientReducer::State::wait() {
  const at::NoGradGuard no_grad;
  std::exception_ptr first_error;
  for (PendingReduction& reduction : pending) {
    try {
      finish(reduction);
    } catch (...) {
      if (!first_error) first_error = std::current_exception();
    }
  }
  pending.clear();
  for (Parameter& parameter : parameters) {
    parameter.buffer.reset();
    parameter.gradient.reset();
  }
  if (first_error) {
    end_step();
    std::rethrow_exception(first_error);
  }
}

}  // namespace kolo::detail
