// How gradients travel.
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

// Backward has a thread for the CPU's parameters and one for the GPU's.
void GradientReducer::State::on_gradient(std::size_t index) {
  const std::lock_guard lock(hooks);
  Parameter& parameter = parameters[index];
  count_pass(parameter);
  const bool is_last = parameter.passes == options.backward_passes_per_step;
  // A gradient that stayed undefined is made when the step is synchronized.
  if (!is_member || !is_last || !parameter.tensor.grad().defined()) return;
  require_reducible(parameter);
  if (!parameter.group) {
    submit(index, 1.0);
    return;
  }
  parameter.ready = true;
  const GradientGroup& group = groups[*parameter.group];
  if (is_ready(group)) submit_group(group, 1.0);
}

void GradientReducer::State::submit_missing() {
  const auto is_missing = [](const Parameter& parameter) {
    return !parameter.submitted && parameter.tensor.requires_grad();
  };
  // All are looked at before any is submitted: after a refusal the call may be repeated.
  for (const Parameter& parameter : parameters) {
    if (is_missing(parameter)) require_reducible(parameter);
  }
  const double correction = mean_correction();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (!is_missing(parameters[i])) continue;
    if (parameters[i].group) {
      submit_group(groups[*parameters[i].group], correction);
    } else {
      submit(i, correction);
    }
  }
}

bool GradientReducer::State::is_ready(const GradientGroup& group) const {
  return std::all_of(group.members.begin(), group.members.end(), [&](std::size_t member) {
    return parameters[member].ready || !parameters[member].tensor.requires_grad();
  });
}

std::string GradientReducer::State::operation_name(const std::string& name) const {
  return std::to_string(number) + "." + name;
}

// A gradient that is missing is taken to be as the last was.
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
    if (parameter.group) refuse("those do not travel in groups");
    if (options.op == ReduceOp::adasum) refuse("adasum is for dense ones");
  }
  if (gradient.defined() && gradient.layout() != at::kSparse) {
    require_supported(gradient, parameter.name);
  }
}

// The elements travel in the order in which the parameter's lie in memory, which is the same on all
// ranks. Autograd keeps gradients in that order, so that there is rarely anything to copy.
void GradientReducer::State::prepare(Parameter& parameter, double correction) const {
  ::torch::Tensor& gradient = parameter.tensor.mutable_grad();
  if (!gradient.defined()) gradient = at::zeros_like(parameter.tensor);
  if (gradient.layout() == at::kSparse) gradient = gradient.to_dense();
  require_supported(gradient, parameter.name);
  if (correction != 1.0) gradient.mul_(correction);
  parameter.gradient = gradient;
  parameter.image = gradient;
  if (!same_layout(gradient, parameter.tensor)) {
    parameter.image = at::empty_like(parameter.tensor);
    parameter.image.copy_(gradient);
  }
  parameter.sparse_dims = 0;
}

void GradientReducer::State::submit(std::size_t index, double correction) {
  const at::NoGradGuard no_grad;
  Parameter& parameter = parameters[index];
  if (travels_sparse(parameter)) {
    submit_sparse(index, correction);
    return;
  }
  prepare(parameter, correction);
  const TensorView view = view_of(parameter.image);
  const AllreduceOptions allreduce{.name = operation_name(parameter.name),
                                   .op = options.op,
                                   .prescale = prescale(options),
                                   .postscale = postscale(options),
                                   .compression = options.compression,
                                   .process_set = options.process_set};
  const StreamOf stream(parameter.image);
  Flight flight{.members = {index}};
  flight.future = call_async(AllreduceCall{view, view, allreduce, step});
  flights.push_back(std::move(flight));
  parameter.submitted = true;
}

void GradientReducer::State::submit_group(const GradientGroup& group, double correction) {
  const at::NoGradGuard no_grad;
  Flight flight;
  std::vector<TensorView> views;
  for (const std::size_t member : group.members) {
    if (!parameters[member].tensor.requires_grad()) continue;
    prepare(parameters[member], correction);
    views.push_back(view_of(parameters[member].image));
    flight.members.push_back(member);
  }
  const GroupedAllreduceOptions allreduce{.name = operation_name(group.name),
                                          .op = options.op,
                                          .prescale = prescale(options),
                                          .postscale = postscale(options),
                                          .compression = options.compression,
                                          .process_set = options.process_set};
  const StreamOf stream(parameters[group.members.front()].tensor);
  flight.future = call_async(GroupedAllreduceCall{views, allreduce, step});
  for (const std::size_t member : flight.members) parameters[member].submitted = true;
  flights.push_back(std::move(flight));
}

void GradientReducer::State::submit_sparse(std::size_t index, double correction) {
  Parameter& parameter = parameters[index];
  ::torch::Tensor gradient = parameter.tensor.grad();
  if (!gradient.defined()) {
    gradient = at::zeros_like(parameter.tensor, parameter.tensor.options().layout(at::kSparse));
  }
  if (gradient._nnz() > 0 || parameter.sparse_dims == 0) {
    parameter.sparse_dims = gradient.sparse_dim();
  }
  Flight flight{.members = {index}};
  flight.sparse = std::make_unique<SparseReduction>(
      gradient, parameter.sparse_dims,
      SparseReduction::Settings{operation_name(parameter.name), step, options.process_set});
  flight.sparse_scale = correction * prescale(options) * postscale(options);
  if (options.op == ReduceOp::average) flight.sparse_scale /= options.process_set.size();
  flights.push_back(std::move(flight));
  parameter.submitted = true;
}

void GradientReducer::State::finish(Flight& flight) {
  if (flight.sparse) {
    ::torch::Tensor& gradient = parameters[flight.members.front()].tensor.mutable_grad();
    gradient = flight.sparse->finish(flight.sparse_scale);
    return;
  }
  flight.future.get();
  for (const std::size_t member : flight.members) {
    Parameter& parameter = parameters[member];
    if (parameter.image.is_same(parameter.gradient)) {
      mark_changed(parameter.gradient);
    } else {
      parameter.gradient.copy_(parameter.image);
    }
  }
}

void GradientReducer::State::wait() {
  const at::NoGradGuard no_grad;
  std::exception_ptr first_error;
  for (Flight& flight : flights) {
    try {
      finish(flight);
    } catch (...) {
      if (!first_error) first_error = std::current_exception();
    }
  }
  flights.clear();
  for (Parameter& parameter : parameters) {
    parameter.image.reset();
    parameter.gradient.reset();
  }
  if (first_error) {
    end_step();
    std::rethrow_exception(first_error);
  }
}

}  // namespace kolo::detail
