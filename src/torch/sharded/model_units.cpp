// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/ivalue.h>  // first: see kolo/torch/optimizer.hpp

#include "torch/sharded/model_units.hpp"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "kolo/error.hpp"

namespace kolo::internal {
namespace {

bool is_inside(const std::string& name, const std::string& module) {
  return module.empty() || name == module || name.starts_with(module + ".");
}

// A name of a unit, which may be registered several times.
struct Registration {
  std::string name;
  std::size_t unit;
};

// The unit with the longest name that has `name` inside. Names of modules that are inside of each
// other differ in length. The root comes first.
std::size_t innermost(const std::vector<Registration>& registrations, const std::string& name) {
  const Registration* found = &registrations.front();
  for (const Registration& one : registrations)
    if (is_inside(name, one.name) && one.name.size() > found->name.size()) found = &one;
  return found->unit;
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
  std::vector<Registration> registrations{{"", 0}};
  std::unordered_map<const detail::ShardedModule*, std::size_t> seen{{root, 0}};
  for (const auto& item : model.named_modules("", /*include_self=*/false)) {
    auto* const module = dynamic_cast<detail::ShardedModule*>(item.value().get());
    if (module == nullptr) continue;
    const std::size_t parent = innermost(registrations, item.key());
    all.units[parent].contains_units = true;
    const auto [found, is_new] = seen.try_emplace(module, all.units.size());
    registrations.push_back({item.key(), found->second});
    if (is_new) {
      all.units.push_back({.name = item.key(), .module = module, .parent = parent});
    } else {
      ModelUnit& unit = all.units[found->second];
      unit.parent = common(all.units, unit.parent, parent);
    }
  }
  std::unordered_map<const c10::TensorImpl*, std::size_t> known;
  for (const auto& item : model.named_parameters()) {
    if (!item.value().defined()) continue;
    const std::size_t unit = innermost(registrations, item.key());
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
