// SPDX-License-Identifier: Apache-2.0
// The names of an optimizer's parameters, which are equal on all ranks.
#pragma once

#include <torch/optim/optimizer.h>

#include <cstddef>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "kolo/error.hpp"
#include "kolo/torch/state.hpp"
#include "torch/tensor_view.hpp"

namespace kolo::internal {

using ParameterGroups = std::vector<::torch::optim::OptimizerParamGroup>;

/// Calls `visit(group, index, tensor)` for each parameter: the number of its group, its number in
/// the group, and the parameter itself.
template <typename Visit>
void for_each_parameter(const ParameterGroups& groups, const Visit& visit) {
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const auto& tensors = groups[i].params();
    for (std::size_t j = 0; j < tensors.size(); ++j) {
      if (tensors[j].defined()) visit(i, j, tensors[j]);
    }
  }
}

/// Names given by the program, or made from positions. `subject` begins messages.
class ParameterNames {
 public:
  /// Names parameters by their position.
  ParameterNames() = default;
  /// Throws InvalidArgument for a repeated name. The first name of a tensor with several names is
  /// used.
  ParameterNames(const NamedParameters& named, const char* subject) : named_(named) {
    for (const auto& [name, tensor] : named) {
      const auto entry = name_of_.emplace(tensor.unsafeGetTensorImpl(), name).first;
      if (!first_name_of_.emplace(name, entry->second).second) {
        throw InvalidArgument(std::string(subject) + ": two parameters are named '" + name + "'",
                              name);
      }
    }
  }

  /// Throws InvalidArgument if a parameter has no name.
  void require_all(const ParameterGroups& groups, const char* subject) const {
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

  /// The given name of a parameter, or its position.
  [[nodiscard]] std::string of(const ::torch::Tensor& tensor, std::size_t group,
                               std::size_t index) const {
    const auto name = name_of_.find(tensor.unsafeGetTensorImpl());
    if (name != name_of_.end()) return name->second;
    return "group" + std::to_string(group) + "." + std::to_string(index);
  }

  /// The name used for the tensor that is also called `name`; nothing for an unknown name.
  [[nodiscard]] std::optional<std::string> first_name(const std::string& name) const {
    const auto entry = first_name_of_.find(name);
    if (entry == first_name_of_.end()) return std::nullopt;
    return entry->second;
  }

 private:
  NamedParameters named_;  // keeps the tensors of `name_of_` alive
  std::unordered_map<const c10::TensorImpl*, std::string> name_of_;
  std::unordered_map<std::string, std::string> first_name_of_;
};

}  // namespace kolo::internal
