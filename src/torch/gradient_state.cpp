// SPDX-License-Identifier: Apache-2.0
// Tracks an optimizer's parameters, their hooks and their backward passes.
#include <ATen/core/ivalue.h>  // first: see kolo/torch/optimizer.hpp

#include "torch/gradient_state.hpp"

#include <torch/csrc/autograd/function.h>

#include <algorithm>

#include "kolo/error.hpp"
#include "kolo/torch/collectives.hpp"
#include "torch/tensor_view.hpp"

namespace kolo::internal {
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
  if (accumulator == accumulator_) return;  // the hook is in place; a second would count twice
  accumulator->add_post_hook(std::make_unique<Hook>(std::move(action)));
  accumulator_ = std::move(accumulator);
}

}  // namespace kolo::internal

namespace kolo::detail {

using namespace internal;

void GradientReducer::State::adopt(const Groups& optimizer_groups) {
  for_each_parameter(optimizer_groups,
                     [&](std::size_t i, std::size_t j, const ::torch::Tensor& tensor) {
                       // A tied weight has one gradient, and so one hook and one reduction.
                       if (!known.insert(tensor.unsafeGetTensorImpl()).second) return;
                       Parameter& parameter = parameters.emplace_back();
                       parameter.name = names.of(tensor, i, j);
                       parameter.tensor = tensor;
                       const auto group = group_numbers.find(parameter.name);
                       if (group != group_numbers.end())
                         join_group(parameters.size() - 1, group->second);
                     });
  // A weak pointer, because the autograd graph owns the hook and may outlive the optimizer.
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    parameters[i].hook.attach(parameters[i].tensor, [weak = weak_from_this(), i] {
      if (const auto state = weak.lock()) state->on_gradient(i);
    });
  }
}

void GradientReducer::State::make_groups() {
  if (options.num_groups > 0) {
    std::vector<std::string> trained;
    for (const Parameter& parameter : parameters) {
      if (parameter.tensor.requires_grad()) trained.push_back(parameter.name);
    }
    group_numbers = consecutive_groups(trained, static_cast<std::size_t>(options.num_groups));
  } else {
    group_numbers =
        listed_groups(options.groups, [&](const std::string& name) -> std::optional<std::string> {
          if (const auto first = names.first_name(name)) return first;
          const bool is_known =
              std::any_of(parameters.begin(), parameters.end(),
                          [&](const Parameter& parameter) { return parameter.name == name; });
          return is_known ? std::optional(name) : std::nullopt;
        });
  }
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const auto group = group_numbers.find(parameters[i].name);
    if (group != group_numbers.end()) join_group(i, group->second);
  }
}

void GradientReducer::State::join_group(std::size_t index, std::size_t number_of_group) {
  if (groups.size() <= number_of_group) groups.resize(number_of_group + 1);
  GradientGroup& group = groups[number_of_group];
  if (group.indices.empty()) group.name = "(group of " + parameters[index].name + ")";
  group.indices.push_back(index);
  parameters[index].group = number_of_group;
}

void GradientReducer::State::require_agreement() const {
  std::vector<Item> items{describe(options)};
  for (const Parameter& parameter : parameters) {
    std::string description = describe(parameter.tensor);
    if (!parameter.tensor.requires_grad()) description += ", frozen";
    if (parameter.group) description += ", in group " + std::to_string(*parameter.group);
    items.push_back({parameter.name, description});
  }
  internal::require_agreement("kolo.parameters." + std::to_string(number),
                              "The options or parameters of the DistributedOptimizer", items,
                              options.process_set);
}

void GradientReducer::State::count_pass(Parameter& parameter) const {
  const std::string name = "'" + parameter.name + "'";
  if (synchronized) {
    throw InvalidArgument(name +
                              ": a backward pass between synchronize() and step(). Call step(), or "
                              "skip_step() to drop the synchronized gradients",
                          parameter.name);
  }
  if (parameter.passes >= options.backward_passes_per_step || parameter.submitted) {
    throw InvalidArgument(name + ": more backward passes than backward_passes_per_step (" +
                              std::to_string(options.backward_passes_per_step) +
                              ") before step(). Call step(), or the DistributedOptimizer's "
                              "zero_grad() to discard these passes",
                          parameter.name);
  }
  ++parameter.passes;  // after the checks: a refused pass does not count
}

// 0 if no hook ran, which happens when parameters were converted after the last step.
int GradientReducer::State::passes_made() const {
  int made = 0;
  for (const Parameter& parameter : parameters) made = std::max(made, parameter.passes);
  return made;
}

// The prescale of an operation divides by the passes of a complete step. If this step had fewer,
// gradients are multiplied by this factor first, so that the result is the mean of the passes made.
double GradientReducer::State::mean_correction() const {
  const int made = passes_made();
  if (options.accumulation == Accumulation::sum || made == 0) return 1.0;
  return static_cast<double>(options.backward_passes_per_step) / made;
}

void GradientReducer::State::accumulate_alone() {
  if (options.accumulation == Accumulation::sum) return;
  const at::NoGradGuard no_grad;
  const double factor = mean_correction() / options.backward_passes_per_step;
  for (const Parameter& parameter : parameters) {
    ::torch::Tensor& gradient = parameter.tensor.mutable_grad();
    if (parameter.tensor.requires_grad() && gradient.defined()) gradient.mul_(factor);
  }
}

void GradientReducer::State::forget_passes() {
  for (Parameter& parameter : parameters) {
    parameter.passes = 0;
    parameter.ready = false;
  }
}

void GradientReducer::State::end_step() {
  forget_passes();
  for (Parameter& parameter : parameters) parameter.submitted = false;
  synchronized = false;
  step.advance();
}

GradientReducer::GradientReducer(const Groups& groups, const std::optional<NamedParameters>& names,
                                 const DistributedOptimizerOptions& options)
    : state_(std::make_shared<State>()) {
  require_valid(options);
  state_->options = options;
  state_->is_member = options.process_set.rank() >= 0;
  if (names) {
    state_->names = ParameterNames(*names);
    state_->names.require_all(groups);
  }
  // Hooks are attached first: a member that fails later throws from this constructor, and the weak
  // pointers in its hooks expire. The collectives come last, after all local checks.
  state_->adopt(groups);
  for (const Parameter& parameter : state_->parameters) require_short(parameter.name);
  state_->make_groups();
  if (!state_->is_member) return;
  state_->number = agree_on_optimizer_number(options.process_set);
  state_->require_agreement();
}

GradientReducer::GradientReducer(GradientReducer&&) noexcept = default;
GradientReducer& GradientReducer::operator=(GradientReducer&&) noexcept = default;
GradientReducer::~GradientReducer() = default;

void GradientReducer::synchronize(const Groups& groups) {
  if (state_->synchronized) return;
  // Parameters may have been added or converted since the last step.
  state_->adopt(groups);
  if (state_->is_member) {
    state_->submit_missing();
    state_->wait();
  } else {
    state_->accumulate_alone();
  }
  state_->synchronized = true;
}

const ProcessSet& GradientReducer::process_set() const { return state_->options.process_set; }

void GradientReducer::end_step() { state_->end_step(); }

void GradientReducer::skip_step(const Groups& groups) {
  if (state_->step.is_cut_by_join()) {
    state_->wait();
  } else {
    // Also if nothing was submitted here: other ranks may have begun the step.
    synchronize(groups);
  }
  end_step();
}

void GradientReducer::discard(const Groups& groups) {
  const bool begun = state_->synchronized ||
                     std::any_of(state_->parameters.begin(), state_->parameters.end(),
                                 [](const Parameter& parameter) { return parameter.submitted; });
  // Operations that have begun cannot be taken back: other ranks take part in them. The step is
  // completed on all ranks, and its gradients are dropped by the caller.
  if (begun) {
    skip_step(groups);
  } else {
    state_->adopt(groups);
    state_->forget_passes();
  }
}

::torch::Tensor GradientReducer::reduce_loss(const ::torch::Tensor& loss) {
  if (!loss.defined() || !state_->is_member) return loss;
  const bool is_sum = state_->options.op == ReduceOp::sum;
  return allreduce(loss.detach(), {.name = std::to_string(state_->number) + ".(loss)",
                                   .op = is_sum ? ReduceOp::sum : ReduceOp::average,
                                   .process_set = state_->options.process_set});
}

}  // namespace kolo::detail
