// Which gradients there are, and how many backward passes have added to them.
#include <ATen/core/ivalue.h>  // first: see kolo/torch/optimizer.hpp

#include "torch/gradient_state.hpp"

#include <algorithm>

#include "kolo/error.hpp"
#include "torch/tensor_view.hpp"

namespace kolo::detail {

void GradientReducer::State::adopt(const Groups& optimizer_groups) {
  for_each_parameter(optimizer_groups,
                     [&](std::size_t i, std::size_t j, const ::torch::Tensor& tensor) {
                       if (!known.insert(tensor.unsafeGetTensorImpl()).second) return;
                       Parameter& parameter = parameters.emplace_back();
                       parameter.name = names.of(tensor, i, j);
                       parameter.tensor = tensor;
                       const auto group = group_numbers.find(parameter.name);
                       if (group != group_numbers.end())
                         join_group(parameters.size() - 1, group->second);
                     });
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
  if (group.members.empty()) group.name = "(group of " + parameters[index].name + ")";
  group.members.push_back(index);
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
  detail::require_agreement("kolo.parameters." + std::to_string(number),
                            "The options or parameters of the DistributedOptimizer", items,
                            options.process_set);
}

void GradientReducer::State::count_pass(Parameter& parameter) const {
  const std::string name = "'" + parameter.name + "'";
  if (synchronized) {
    throw InvalidArgument(name + ": a backward pass between synchronize() and step()",
                          parameter.name);
  }
  if (parameter.passes >= options.backward_passes_per_step || parameter.submitted) {
    throw InvalidArgument(name + ": more backward passes than backward_passes_per_step (" +
                              std::to_string(options.backward_passes_per_step) +
                              ") before step(). Call step(), or zero_grad() of the "
                              "DistributedOptimizer to give up the passes made",
                          parameter.name);
  }
  ++parameter.passes;
}

// 0 where no hook has seen any: where parameters were converted after the last step.
int GradientReducer::State::passes_made() const {
  int made = 0;
  for (const Parameter& parameter : parameters) made = std::max(made, parameter.passes);
  return made;
}

// What gradients are multiplied by where a mean is wanted and fewer passes were made than the
// operation divides by.
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
  ++step;
}

}  // namespace kolo::detail
