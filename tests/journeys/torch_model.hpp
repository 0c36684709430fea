// SPDX-License-Identifier: Apache-2.0
// The model that a TorchTrainer trains: a module with one layer, of one of LibTorch's two kinds.
#pragma once

#include <torch/csrc/jit/api/module.h>
#include <torch/nn/module.h>
#include <torch/types.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kolo/torch.hpp"
#include "program.hpp"
#include "trainer.hpp"

namespace kolo::internal::journeys {

using TensorFunction = std::function<::torch::Tensor(const ::torch::Tensor&)>;

inline ::torch::Tensor within_checkpoints(int depth, const TensorFunction& function,
                                          const ::torch::Tensor& input) {
  if (depth == 0) return function(input);
  return checkpointed(
      [=](const ::torch::Tensor& inner) { return within_checkpoints(depth - 1, function, inner); },
      input);
}

class TorchModel {
 public:
  using Tensor = ::torch::Tensor;

  TorchModel(const Program& program, const Model& model) : program_(program), model_(model) {
    for (const int size : model.sizes) {
      const Shape shape = shape_of_parameter(program, size);
      parameters_.push_back(
          ::torch::zeros(std::vector(shape.lengths().begin(), shape.lengths().end())));
    }
    freeze(program.has(Feature::unfrozen) ? std::vector<bool>(model.sizes.size(), true)
                                          : model.frozen);
    if (program.has(Feature::jit)) {
      make_jit();
    } else {
      module_.register_module("layer", make_layer());
    }
  }
  TorchModel(const TorchModel&) = delete;
  TorchModel& operator=(const TorchModel&) = delete;

  [[nodiscard]] const std::vector<Tensor>& parameters() const { return parameters_; }
  [[nodiscard]] NamedParameters named_parameters() {
    NamedParameters named;
    with_module([&](auto& module) { named = detail::module_parameters(module); });
    return named;
  }
  /// Calls `use` with the module, which has one of two types.
  template <typename Use>
  void with_module(const Use& use) {
    if (jit_) {
      use(*jit_);
    } else {
      use(module_);
    }
  }
  /// To be called once the optimizer is made.
  void unfreeze() { freeze(model_.frozen); }
  /// Replaces the layer by one with new parameters of the same values.
  void replace() {
    for (Tensor& parameter : parameters_) parameter = parameter.detach().clone();
    freeze(model_.frozen);
    module_.replace_module("layer", make_layer());
  }

 private:
  // A name has a dot: it is that of a module's parameter.
  [[nodiscard]] std::string name_in_layer(std::size_t i) const {
    return name_of_parameter(program_, i).substr(std::string_view("layer.").size());
  }
  void freeze(const std::vector<bool>& frozen) {
    for (std::size_t i = 0; i < parameters_.size(); ++i)
      parameters_[i].set_requires_grad(!frozen[i]);
  }
  [[nodiscard]] std::shared_ptr<::torch::nn::Module> make_layer() const {
    auto layer = std::make_shared<::torch::nn::Module>();
    for (std::size_t i = 0; i < parameters_.size(); ++i)
      layer->register_parameter(name_in_layer(i), parameters_[i], parameters_[i].requires_grad());
    return layer;
  }
  void make_jit() {
    ::torch::jit::Module layer("layer");
    for (std::size_t i = 0; i < parameters_.size(); ++i)
      layer.register_parameter(name_in_layer(i), parameters_[i], /*is_buffer=*/false);
    jit_.emplace("model");
    jit_->register_module("layer", layer);
  }

  const Program& program_;
  const Model& model_;
  std::vector<Tensor> parameters_{};
  ::torch::nn::Module module_{};
  std::optional<::torch::jit::Module> jit_{};
};

}  // namespace kolo::internal::journeys
