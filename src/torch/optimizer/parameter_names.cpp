// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/ivalue.h>  // first: see kolo/torch/optimizer.hpp

#include "torch/optimizer/parameter_names.hpp"

#include "kolo/error.hpp"
#include "torch/tensor_view.hpp"

namespace kolo::internal {

ParameterNames::ParameterNames(const NamedParameters& named, const char* subject) : named_(named) {
  for (const auto& [name, tensor] : named) {
    const auto entry = name_of_.emplace(tensor.unsafeGetTensorImpl(), name).first;
    if (!first_name_of_.emplace(name, entry->second).second) {
      throw InvalidArgument(std::string(subject) + ": two parameters are named '" + name + "'",
                            name);
    }
  }
}

void ParameterNames::require_all(const ParameterGroups& groups, const char* subject) const {
  int nameless = 0;
  std::string first;
  for_each_parameter(groups, [&](std::size_t i, std::size_t j, const ::torch::Tensor& tensor) {
    if (name_of_.contains(tensor.unsafeGetTensorImpl())) return;
    if (nameless++ == 0) {
      first = "parameter " + std::to_string(j) + " of group " + std::to_string(i) + " (" +
              describe(tensor) + ")";
    }
  });
  if (nameless != 0) {
    throw InvalidArgument(std::string(subject) + ": " + std::to_string(nameless) +
                          " of the optimizer's parameters have no name; the first is " + first);
  }
}

std::string ParameterNames::of(const ::torch::Tensor& tensor, std::size_t group,
                               std::size_t index) const {
  const auto name = name_of_.find(tensor.unsafeGetTensorImpl());
  if (name != name_of_.end()) return name->second;
  return "group" + std::to_string(group) + "." + std::to_string(index);
}

std::optional<std::string> ParameterNames::first_name(const std::string& name) const {
  const auto entry = first_name_of_.find(name);
  if (entry == first_name_of_.end()) return std::nullopt;
  return entry->second;
}

}  // namespace kolo::internal
