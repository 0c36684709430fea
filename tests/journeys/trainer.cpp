// SPDX-License-Identifier: Apache-2.0
// Functions shared by both kinds of trainers.
#include "trainer.hpp"

#include <algorithm>
#include <cmath>
#include <memory>

#include "kolo/collectives.hpp"
#include "support/halves_hook.hpp"

namespace kolo::internal::journeys {

DistributedOptimizerOptions options_of(const TrainerArguments& arguments) {
  const Model& model = arguments.model;
  DistributedOptimizerOptions options{.op = model.op,
                                      .compression = model.compression,
                                      .backward_passes_per_step = model.passes_per_step,
                                      .accumulation = model.accumulation,
                                      .gradient_predivide_factor = model.predivide,
                                      .num_groups = model.num_groups,
                                      .hook = arguments.hook,
                                      .process_set = arguments.set};
  for (const std::vector<int>& group : model.groups) {
    std::vector<std::string>& names = options.groups.emplace_back();
    for (const int index : group)
      names.push_back(name_of_parameter(arguments.program, static_cast<std::size_t>(index)));
  }
  return options;
}

// A hook leaves whole gradients.
Sharding sharding_of(const TrainerArguments& arguments) {
  return arguments.program.seed % 3 == 0 || arguments.hook ? Sharding::state
                                                           : Sharding::state_and_gradients;
}

double joint_norm(std::span<const std::span<float>> parts, const TrainerArguments& arguments) {
  double squares = 0.0;
  for (const auto part : parts)
    for (const float value : part) squares += static_cast<double>(value) * value;
  if (arguments.set.contains(arguments.rank))
    allreduce(squares, {.name = "joint norm", .op = ReduceOp::sum, .process_set = arguments.set});
  return std::sqrt(squares);
}

void gather_parts(std::span<float> whole, const TrainerArguments& arguments) {
  if (!arguments.set.contains(arguments.rank)) return;
  const auto elements = static_cast<std::int64_t>(whole.size());
  std::int64_t begin = 0;
  for (int index = 0; index < arguments.set.rank(); ++index)
    begin += reducescatter_rows(elements, index, arguments.set.size());
  const std::int64_t own = reducescatter_rows(elements, arguments.set.rank(), arguments.set.size());
  const auto gathered =
      allgather(whole.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(own)),
                {.name = "parts of a state", .process_set = arguments.set});
  std::ranges::copy(gathered.values, whole.begin());
}

std::string name_of_parameter(const Program& program, std::size_t index) {
  const std::string name = "layer." + std::to_string(index);
  return program.has(Feature::long_names) ? name + std::string(10000, 'x') : name;
}

Shape shape_of_parameter(const Program& program, int size) {
  constexpr int columns = 3;
  return program.has(Feature::power_sgd) && size % columns == 0 ? Shape(size / columns, columns)
                                                                : Shape(size);
}

// Small buckets have hooks, too.
std::shared_ptr<CommunicationHook> make_hook(const Program& program) {
  if (program.has(Feature::communication_hook)) return std::make_shared<HalvesHook>();
  if (program.has(Feature::int8))
    return int8({.block = 16, .min_elements = 1, .error_feedback = program.seed % 4 < 3});
  if (program.has(Feature::power_sgd))
    return power_sgd({.rank = 1 + static_cast<int>(program.seed % 2),
                      .min_compression = 1.01,
                      .warm_start = program.seed % 4 < 3,
                      .error_feedback = program.seed % 3 > 0});
  return nullptr;
}

}  // namespace kolo::internal::journeys
