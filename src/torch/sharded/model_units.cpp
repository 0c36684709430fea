// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/ivalue.h>  // first: see kolo/torch/optimizer.hpp

#include "torch/sharded/model_units.hpp"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "kolo/error.hpp"

namespace kolo::internal {
namespace {

bool is_inside(const std::string& name, const std::string& module) {
  return module.empty() || name == module || name.starts_with(module + ".");
}

// The unit with the longest name that has `name` inside. Names of modules that are inside of each
// other differ in length.
std::size_t innermost(const std::vector<ModelUnit>& units, const std::string& name) {
  std::size_t found = 0;
  for (std::size_t i = 1; i < units.size(); ++i)
    if (is_inside(name, units[i].name) && units[i].name.size() > units[found].name.size())
      found = i;
  return found;
}

std::size_t common(const std::vector<ModelUnit>& units, std::size_t a, std::size_t b) {
  std::vector<std::size_t> around{a};
  while (around.back() != 0) around.push_back(units[around.back()].parent);
  while (std::ranges::find(around, b) == around.end()) b = units[b].parent;
  return b;
}

}  // namespace

ModelUnits units_of(::torch::nn::Module& model) {
  auto* const root = dynamic_cast<detail::ShardedModule*>(&model);
  if (root == nullptr)
    throw InvalidArgument(
        "FullySharded: the model itself must be a unit: declare it as kolo::Sharded<" +
        model.name() + "> instead of the holder of " + model.name());
  ModelUnits all{.units = {{.name = "", .module = root, .parent = 0}}};
  std::unordered_set<const detail::ShardedModule*> seen{root};
  for (const auto& item : model.named_modules("", /*include_self=*/false)) {
    auto* const module = dynamic_cast<detail::ShardedModule*>(item.value().get());
    if (module == nullptr || !seen.insert(module).second) continue;
    const std::size_t parent = innermost(all.units, item.key());
    all.units[parent].contains_units = true;
    all.units.push_back({.name = item.key(), .module = module, .parent = parent});
  }
  std::unordered_map<const c10::TensorImpl*, std::size_t> known;
  for (const auto& item : model.named_parameters()) {
    if (!item.value().defined()) continue;
    const std::size_t unit = innermost(all.units, item.key());
    const auto [found, is_new] =
        known.try_emplace(item.value().unsafeGetTensorImpl(), all.parameters.size());
    if (is_new) {
      all.parameters.push_back({.names = {item.key()}, .tensor = item.value(), .unit = unit});
    } else {
      ModelParameter& parameter = all.parameters[found->second];
      parameter.names.push_back(item.key());
      parameter.unit = common(all.units, parameter.unit, unit);
    }
  }
  return all;
}

}  // namespace kolo::internal
