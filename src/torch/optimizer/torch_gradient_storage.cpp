// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/ivalue.h>  // first: see kolo/torch/optimizer.hpp

#include "torch/optimizer/torch_gradient_storage.hpp"

#include <ATen/ops/_sparse_coo_tensor_unsafe.h>
#include <ATen/ops/count_nonzero.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <utility>

#include "kolo/error.hpp"
#include "torch/tensor_view.hpp"

namespace kolo::internal {
namespace {

bool is_sparse(const ::torch::Tensor& gradient) { return gradient.layout() == at::kSparse; }

// True if the gradient is part of the pass already. Then an operation may be writing to it.
bool is_part(const Parameter& parameter, const ::torch::Tensor& gradient) {
  return std::ranges::any_of(parameter.rounds, [&](const RoundGradient& round) {
    return round.gradient.is_same(gradient);
  });
}

// Adds in the memory of `total` if possible, because the program may hold that tensor.
::torch::Tensor sum_of(const ::torch::Tensor& total, const ::torch::Tensor& addend) {
  if (is_sparse(total)) return is_sparse(addend) ? total.add(addend).coalesce() : addend.add(total);
  ::torch::Tensor sum = total;
  return sum.add_(addend);
}

// True if the gradient is the tensor of the last result, which the program may have changed.
bool holds_result(const Parameter& parameter) {
  const ::torch::Tensor& gradient = parameter.tensor.grad();
  return gradient.defined() &&
         parameter.reduced._unsafe_get_target() == gradient.unsafeGetTensorImpl();
}

}  // namespace

TorchGradientStorage::TorchGradientStorage(DistributedOptimizerOptions options, const char* subject)
    : options_(std::move(options)), subject_(subject) {}

std::vector<bool> TorchGradientStorage::are_zero(const std::vector<::torch::Tensor>& tensors) {
  std::vector<::torch::Tensor> counts;
  for (const ::torch::Tensor& tensor : tensors)
    counts.push_back(at::count_nonzero(is_sparse(tensor) ? tensor._values() : tensor));
  std::vector<bool> zero;
  const ::torch::Tensor on_host = at::stack(counts).cpu();
  for (std::int64_t i = 0; i < on_host.numel(); ++i)
    zero.push_back(on_host.data_ptr<std::int64_t>()[i] == 0);
  return zero;
}

// True if the gradient holds the last result. If the program has zeroed it since, nothing of the
// result is left.
bool TorchGradientStorage::is_reduced(const Parameter& parameter) const {
  if (!holds_result(parameter)) return false;
  const std::int64_t version = parameter.tensor.grad()._version();
  if (version == parameter.reduced_version) return true;
  if (version != parameter.compared_version) compare_with_zeros(parameter.tensor.device());
  return !parameter.is_zeroed;
}

// Finds out which of the changed results on the device are zero now. Compares all of them at once,
// because a program that zeroes gradients zeroes all, and every comparison waits for the device.
// The gradients of another device may be accumulating in another thread.
void TorchGradientStorage::compare_with_zeros(const ::torch::Device& device) const {
  const at::NoGradGuard no_grad;
  std::vector<const Parameter*> changed;
  std::vector<::torch::Tensor> gradients;
  for (const Parameter& parameter : parameters_) {
    if (parameter.tensor.device() != device || !holds_result(parameter)) continue;
    const ::torch::Tensor& gradient = parameter.tensor.grad();
    if (gradient._version() == parameter.reduced_version ||
        gradient._version() == parameter.compared_version)
      continue;
    changed.push_back(&parameter);
    gradients.push_back(gradient);
  }
  const std::vector<bool> zero = are_zero(gradients);
  for (std::size_t i = 0; i < changed.size(); ++i) {
    changed[i]->compared_version = gradients[i]._version();
    changed[i]->is_zeroed = zero[i];
  }
}

void TorchGradientStorage::make_room(std::size_t slot) {
  require_unmixed(slot);
  Parameter& parameter = parameters_[slot];
  parameter.mixed = false;
  ::torch::Tensor& gradient = parameter.tensor.mutable_grad();
  if (!gradient.defined()) return;
  if (!parameter.rounds.empty()) {
    if (is_part(parameter, gradient)) gradient.reset();
  } else if (!parameter.set_aside.defined() && is_reduced(parameter)) {
    parameter.set_aside = std::exchange(gradient, ::torch::Tensor());
  }
  parameter.reduced.reset();  // the gradient that accumulates next is not reduced
}

void TorchGradientStorage::accumulate_locally(std::size_t slot) {
  Parameter& parameter = parameters_[slot];
  parameter.mixed = is_reduced(parameter);
  if (!parameter.mixed) parameter.reduced.reset();
}

void TorchGradientStorage::accumulated_unnoticed(std::size_t slot) {
  Parameter& parameter = parameters_[slot];
  const ::torch::Tensor& gradient = parameter.tensor.grad();
  if (!gradient.defined()) return;
  if (!is_reduced(parameter))
    parameter.waiting = true;
  else if (gradient._version() != parameter.reduced_version)
    parameter.mixed = true;
}

void TorchGradientStorage::move_gradient(const ::torch::Tensor& tensor, ::torch::Tensor copy) {
  for (Parameter& parameter : parameters_) {
    if (!parameter.tensor.is_same(tensor)) continue;
    const bool reduced = is_reduced(parameter);
    parameter.tensor.mutable_grad() = copy;
    if (reduced) put(parameter, std::move(copy));
    return;
  }
}

void TorchGradientStorage::require_unmixed(std::size_t slot) const {
  const Parameter& parameter = parameters_[slot];
  if (!parameter.mixed || !is_reduced(parameter)) return;
  throw InvalidArgument(
      "'" + parameter.name +
          "': a backward pass without reduction has accumulated onto the reduced gradient, and the "
          "next reduction cannot tell them apart: call zero_grad() between them",
      parameter.name);
}

void TorchGradientStorage::require_unmixed() const {
  for (std::size_t slot = 0; slot < parameters_.size(); ++slot)
    if (takes_part(slot)) require_unmixed(slot);
}

// Checks the memory that results are written to. Expanded gradients are copied before.
void TorchGradientStorage::require_disjoint() const {
  std::vector<MemoryUse> uses;
  const auto add = [&](const ::torch::Tensor& gradient, std::size_t slot) {
    if (!gradient.defined() || is_sparse(gradient) || elements_overlap(gradient)) return;
    for_each_run(gradient, [&](const std::byte* begin, std::size_t bytes) {
      uses.push_back({begin, begin + bytes, slot, /*written=*/true});
    });
  };
  for (std::size_t slot = 0; slot < parameters_.size(); ++slot) {
    if (!takes_part(slot)) continue;
    const Parameter& parameter = parameters_[slot];
    add(parameter.tensor.grad(), slot);
    add(parameter.set_aside, slot);
    for (const RoundGradient& round : parameter.rounds) add(round.gradient, slot);
  }
  internal::require_disjoint(
      subject_, uses.size(), [&](std::size_t i) { return uses[i]; },
      [&](std::size_t slot) { return parameters_[slot].name; });
}

void TorchGradientStorage::forget_changed() {
  for (Parameter& parameter : parameters_) {
    const ::torch::Tensor& gradient = parameter.tensor.grad();
    if (!parameter.mixed && gradient.defined() && gradient._version() != parameter.reduced_version)
      parameter.reduced.reset();
  }
}

void TorchGradientStorage::forget() {
  for (Parameter& parameter : parameters_) {
    parameter.waiting = false;
    parameter.mixed = false;
    parameter.reduced.reset();
  }
}

void TorchGradientStorage::release(std::size_t slot) {
  Parameter& parameter = parameters_[slot];
  Parameter empty{.name = parameter.name, .tensor = {}, .retired = true, .released = true};
  empty.tensor = at::empty({0}, parameter.tensor.options().requires_grad(false));
  empty.former = decltype(empty.former)(parameter.tensor.getIntrusivePtr());
  parameter = std::move(empty);
}

bool TorchGradientStorage::takes_part(std::size_t slot) const {
  const Parameter& parameter = parameters_[slot];
  return parameter.tensor.requires_grad() && !parameter.elsewhere;
}

bool TorchGradientStorage::is_waiting(std::size_t slot) const {
  return parameters_[slot].waiting && parameters_[slot].tensor.grad().defined();
}

int TorchGradientStorage::content(std::size_t slot) const {
  const Parameter& parameter = parameters_[slot];
  const ::torch::Tensor& gradient = parameter.tensor.grad();
  if (!gradient.defined() && !parameter.set_aside.defined() && parameter.rounds.empty()) return 0;
  return travels_sparse(parameter)
             ? 1 + static_cast<int>(parameter.sparse_dims > 0 ? parameter.sparse_dims
                                                              : gradient.sparse_dim())
             : 1;
}

void TorchGradientStorage::expect(std::size_t slot, int content) {
  Parameter& parameter = parameters_[slot];
  if (content == 0 || this->content(slot) > 0) return;
  parameter.sparse_dims = content - 1;
  parameter.expected = takes_part(slot);
}

// A missing gradient is assumed to be of the kind of other ranks' gradients, or of the parameter's
// last one: all ranks must submit the same operation.
bool TorchGradientStorage::travels_sparse(const Parameter& parameter) const {
  if (options_.sparse_as_dense) return false;
  const ::torch::Tensor& gradient = parameter.tensor.grad();
  if (!gradient.defined()) return parameter.sparse_dims > 0;
  return is_sparse(gradient) && gradient.sparse_dim() > 0;
}

void TorchGradientStorage::require_reducible(std::size_t slot, bool grouped) const {
  const Parameter& parameter = parameters_[slot];
  const auto refuse = [&](const std::string& reason) {
    throw InvalidArgument(
        "'" + parameter.name + "': the gradient is sparse, and " + reason + ". Set sparse_as_dense",
        parameter.name);
  };
  if (travels_sparse(parameter)) {
    if (grouped) refuse("sparse gradients cannot be in groups");
    if (options_.op == ReduceOp::adasum) refuse("adasum needs dense gradients");
  }
  require_plain(parameter);
}

void TorchGradientStorage::require_plain(const Parameter& parameter) {
  const ::torch::Tensor& gradient = parameter.tensor.grad();
  if (!gradient.defined()) return;
  if (gradient.requires_grad()) {
    throw InvalidArgument(
        "'" + parameter.name +
            "': backward() with create_graph accumulated a gradient that can be differentiated, "
            "but a reduced gradient cannot. Call torch::autograd::grad for it, which reduces "
            "nothing, and backward() for the loss",
        parameter.name);
  }
  if (!is_sparse(gradient)) require_supported(gradient, parameter.name);
}

::torch::Tensor TorchGradientStorage::take(Parameter& parameter) const {
  ::torch::Tensor& gradient = parameter.tensor.mutable_grad();
  parameter.waiting = false;
  if (!gradient.defined() || parameter.detached) return {};
  if (is_part(parameter, gradient)) return {};
  if (!parameter.set_aside.defined() && is_reduced(parameter)) {
    parameter.set_aside = gradient;
    return {};
  }
  // The program has zeroed or replaced the last result.
  parameter.reduced.reset();
  if (parameter.set_aside.is_same(gradient)) return {};
  // No result can be written into the memory of an expanded gradient, which the program has set, or
  // into that of one whose memory has the negated elements.
  if (elements_overlap(gradient) || gradient.is_neg())
    gradient = gradient.clone(at::MemoryFormat::Contiguous);
  return gradient;
}

// Gradients are reduced in the memory order of their parameters, which was agreed at construction.
// Autograd usually keeps them in that order. A gradient in another order is copied, because its
// order is this rank's own: an element-wise sum in memory would mix up elements.
TensorView TorchGradientStorage::open(std::size_t slot, double factor) {
  const at::NoGradGuard no_grad;
  Parameter& parameter = parameters_[slot];
  ::torch::Tensor gradient = take(parameter);
  if (!gradient.defined()) gradient = at::zeros_like(parameter.tensor);
  if (is_sparse(gradient)) {
    gradient = gradient.to_dense();
    parameter.tensor.mutable_grad() = gradient;
  }
  require_supported(gradient, parameter.name);
  if (factor != 1.0) gradient.mul_(factor);
  parameter.sparse_dims = 0;
  RoundGradient& round = parameter.rounds.emplace_back(RoundGradient{gradient, gradient});
  if (!same_layout(gradient, parameter.tensor)) {
    round.buffer = at::empty_like(parameter.tensor);
    round.buffer.copy_(gradient);
  }
  return view_of(round.buffer);
}

std::unique_ptr<OwnReduction> TorchGradientStorage::open_own(std::size_t slot, double factor,
                                                             const std::string& name,
                                                             std::int64_t number) {
  Parameter& parameter = parameters_[slot];
  if (!travels_sparse(parameter)) return nullptr;
  const at::NoGradGuard no_grad;
  ::torch::Tensor gradient = take(parameter);
  RoundGradient& round = parameter.rounds.emplace_back();
  round.gradient = gradient;
  if (!gradient.defined())
    gradient = at::zeros_like(parameter.tensor, parameter.tensor.options().layout(at::kSparse));
  // An empty gradient does not show the number of sparse dimensions, so the known one is kept.
  if (gradient._nnz() > 0 || parameter.sparse_dims == 0)
    parameter.sparse_dims = gradient.sparse_dim();
  double scale = factor * prescale(options_) * postscale(options_);
  if (options_.op == ReduceOp::average) scale /= options_.process_set.size();
  try {
    // The round is in a deque, so its buffer stays in place.
    return reduce_sparse(gradient, parameter.sparse_dims,
                         {name, number, options_.process_set, scale}, &round.buffer);
  } catch (...) {
    parameter.rounds.pop_back();
    throw;
  }
}

void TorchGradientStorage::scale(std::size_t slot, double factor) {
  const at::NoGradGuard no_grad;
  Parameter& parameter = parameters_[slot];
  ::torch::Tensor gradient = take(parameter);
  if (!gradient.defined()) return;
  if (is_sparse(gradient)) gradient = gradient.coalesce();  // as a reduced one is
  if (factor != 1.0) gradient.mul_(factor);
  parameter.rounds.push_back({gradient, gradient});
}

void TorchGradientStorage::cancel(std::size_t slot) {
  if (!parameters_[slot].rounds.empty()) parameters_[slot].rounds.pop_back();
}

// Backward may still be computing the gradients on the GPU: the operation waits for the stream that
// is current here, backward's.
Future<void> TorchGradientStorage::submit(std::span<const std::size_t> /*slots*/,
                                          const detail::GroupedAllreduceCall& call) {
  return detail::call_async(call);
}

void TorchGradientStorage::close(std::size_t slot, bool keep) {
  const at::NoGradGuard no_grad;
  Parameter& parameter = parameters_[slot];
  ::torch::Tensor total = std::exchange(parameter.set_aside, ::torch::Tensor());
  const std::deque<RoundGradient> rounds = std::exchange(parameter.rounds, {});
  const bool expected = std::exchange(parameter.expected, false);
  parameter.detached = false;
  if (!keep) return;
  // Nothing was reduced, but another rank has a gradient, such as zeros from before a failure here.
  // Optimizers step a parameter that has a gradient, so all ranks must have one.
  if (rounds.empty() && !total.defined() && expected && parameter.sparse_dims == 0)
    total = at::zeros_like(parameter.tensor);
  if (rounds.empty() && !total.defined()) return;
  for (const RoundGradient& round : rounds) {
    ::torch::Tensor result = round.buffer;
    if (!result.defined()) result = round.gradient;  // its operation has failed
    if (!result.defined()) continue;
    if (round.gradient.defined() && !is_sparse(result) && !is_sparse(round.gradient)) {
      if (round.buffer.is_same(round.gradient)) {
        mark_changed(round.gradient);  // Kolo wrote to it, unnoticed by autograd
      } else {
        result = round.gradient;
        result.copy_(round.buffer);
      }
    }
    total = total.defined() ? sum_of(total, result) : result;
  }
  if (total.defined()) put(parameter, std::move(total));
}

void TorchGradientStorage::put(Parameter& parameter, ::torch::Tensor total) const {
  ::torch::Tensor& gradient = parameter.tensor.mutable_grad();
  if (!gradient.is_same(total)) gradient = std::move(total);
  parameter.reduced = decltype(parameter.reduced)(gradient.getIntrusivePtr());
  parameter.reduced_version = gradient._version();
  parameter.compared_version = -1;
  parameter.mixed = false;
}

// Leaves the gradient's memory to the pending operations, and gives the parameter another gradient.
// It must have one, because the other ranks do: an optimizer steps every parameter that has a
// gradient, even if the program then zeroes the gradients and freezes the parameter.
void TorchGradientStorage::detach(std::size_t slot) {
  Parameter& parameter = parameters_[slot];
  if (parameter.rounds.empty() && !parameter.set_aside.defined()) return;
  const at::NoGradGuard no_grad;
  const auto layout = travels_sparse(parameter) ? at::kSparse : at::kStrided;
  ::torch::Tensor& gradient = parameter.tensor.mutable_grad();
  gradient = std::exchange(parameter.set_aside, ::torch::Tensor());
  parameter.detached = true;
  if (!gradient.defined())
    gradient = at::zeros_like(parameter.tensor, parameter.tensor.options().layout(layout));
}

}  // namespace kolo::internal
