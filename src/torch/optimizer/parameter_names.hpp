// SPDX-License-Identifier: Apache-2.0
// The names of an optimizer's parameters, which are equal on all ranks.
#pragma once

#include <torch/optim/optimizer.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <memory>
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
  ParameterNames(const NamedParameters& named, const char* subject) {
    for (const auto& [name, tensor] : named) {
      known_.emplace_back(tensor.getIntrusivePtr());
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
  // Keep the addresses in `name_of_` from being those of other tensors.
  std::vector<c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>> known_;
  std::unordered_map<const c10::TensorImpl*, std::string> name_of_;
  std::unordered_map<std::string, std::string> first_name_of_;
};

/// The parameters of a module, as a parameter group in which each name keeps its position: the
/// program may replace, add or remove parameters. A removed one leaves an undefined tensor.
class ModuleParameters {
 public:
  explicit ModuleParameters(::torch::nn::Module& module)
      : list_([&module] { return module.named_parameters().pairs(); }),
        owned_(module.weak_from_this()),
        is_owned_(!owned_.expired()) {
    update();
  }
  /// `list` returns the parameters of a module of another class.
  explicit ModuleParameters(std::function<NamedParameters()> list) : list_(std::move(list)) {
    update();
  }

  /// Looks at the module again. Returns true if the parameters have changed.
  bool update() {
    const std::shared_ptr<::torch::nn::Module> alive = owned_.lock();
    if (is_owned_ && alive == nullptr) return false;
    NamedParameters now = list_();
    if (std::ranges::equal(now, named_, [](const auto& a, const auto& b) {
          return a.first == b.first && a.second.is_same(b.second);
        }))
      return false;
    named_ = std::move(now);
    std::vector<::torch::Tensor> tensors(position_of_.size());
    for (const auto& [name, tensor] : named_) {
      const auto position = position_of_.try_emplace(name, position_of_.size()).first->second;
      if (position == tensors.size()) tensors.emplace_back();
      tensors[position] = tensor;
    }
    groups_.clear();
    groups_.emplace_back(std::move(tensors));
    return true;
  }
  /// Numbers the positions anew, in the order of the module.
  void renew() {
    named_.clear();
    position_of_.clear();
    update();
  }

  [[nodiscard]] const ParameterGroups& groups() const { return groups_; }
  [[nodiscard]] const NamedParameters& named() const { return named_; }

 private:
  std::function<NamedParameters()> list_;
  std::weak_ptr<::torch::nn::Module> owned_{};
  bool is_owned_ = false;  // not an object on the stack or a member, which must outlive this one
  NamedParameters named_{};
  std::unordered_map<std::string, std::size_t> position_of_{};
  ParameterGroups groups_{};
};

}  // namespace kolo::internal
