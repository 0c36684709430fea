// SPDX-License-Identifier: Apache-2.0
#include "memory_plan.hpp"

#include <fmt/format.h>

#include "elements.hpp"

namespace perf {
namespace {

/// The values of the optimizer's state per parameter.
std::int64_t state_values(OptimizerKind optimizer) {
  switch (optimizer) {
    case OptimizerKind::adamw:
    case OptimizerKind::adam: return 2;
    case OptimizerKind::adagrad:
    case OptimizerKind::rmsprop:
    case OptimizerKind::momentum: return 1;
    case OptimizerKind::sgd: return 0;
  }
  return 0;
}

std::string megabytes(std::int64_t bytes) {
  return fmt::format("{:.1f}", static_cast<double>(bytes) * 1e-6);
}

}  // namespace

MemoryPlan plan_memory(const ModelSize& model, int ranks, kolo::DType dtype,
                       OptimizerKind optimizer) {
  const std::int64_t parameters = model.all * size_of(dtype);
  const std::int64_t state = state_values(optimizer) * parameters;
  const std::int64_t unit = model.largest * size_of(dtype);
  const std::int64_t root = model.root * size_of(dtype);
  const auto share = [ranks](std::int64_t bytes) { return (bytes + ranks - 1) / ranks; };
  const std::int64_t units = ranks == 1 ? 0 : 4 * unit + share(2 * unit) + 2 * root;
  return {.ranks = ranks,
          .replicated = 2 * parameters + state,
          .state = 2 * parameters + share(state),
          .gradients = parameters + share(parameters + state),
          .full = share(2 * parameters + state) + units};
}

std::string describe_memory(const ModelSize& model, const std::vector<int>& ranks,
                            kolo::DType dtype, OptimizerKind optimizer) {
  std::string text = fmt::format(
      "{} parameters in {} with {}; largest unit {}, root {}\n"
      "MB (10^6 bytes) per rank for parameters, gradients and optimizer, without activations\n\n"
      "{:>5} {:>21} {:>16} {:>30} {:>13}\n",
      model.all, find_name(dtype_names, dtype), find_name(optimizer_names, optimizer),
      model.largest, model.root, "ranks", "DistributedOptimizer", "Sharding::state",
      "Sharding::state_and_gradients", "FullySharded");
  for (const int count : ranks) {
    const MemoryPlan plan = plan_memory(model, count, dtype, optimizer);
    text += fmt::format("{:>5} {:>21} {:>16} {:>30} {:>13}\n", count, megabytes(plan.replicated),
                        megabytes(plan.state), megabytes(plan.gradients), megabytes(plan.full));
  }
  return text;
}

}  // namespace perf
