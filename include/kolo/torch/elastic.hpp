// SPDX-License-Identifier: Apache-2.0
// Elastic training with LibTorch: how kolo::elastic::State holds modules, tensors and optimizers.
#pragma once

// clang 14 can read LibTorch 1.13 in C++20 only if this comes first.
#include <ATen/core/ivalue.h>

#include <torch/optim/optimizer.h>
#include <torch/types.h>

#include <concepts>
#include <memory>
#include <string>
#include <utility>

#include "kolo/elastic.hpp"
#include "kolo/export.hpp"
#include "kolo/torch/checkpoint.hpp"

namespace kolo::elastic {

namespace detail {

/// Saves and loads the parameters and buffers of a module, and the data that its own `save` writes.
template <typename Module>
class ModuleHandler : public StateHandler {
 public:
  explicit ModuleHandler(Module& module) : module_(module) {}
  void save(StateDict& state) override { state = kolo::state(module_); }
  void load(const StateDict& state) override { load_state(module_, state); }

 private:
  Module& module_;
};

/// Saves the tensor that the variable refers to at the time of the commit, and loads it in place.
class KOLO_EXPORT TorchTensorHandler : public StateHandler {
 public:
  explicit TorchTensorHandler(::torch::Tensor& tensor) : tensor_(tensor) {}
  void save(StateDict& state) override;
  void load(const StateDict& state) override;

 private:
  ::torch::Tensor& tensor_;
};

/// Saves and loads an optimizer's state (momentum) and the options of its groups (learning rate).
template <typename Optimizer>
class OptimizerHandler : public StateHandler {
 public:
  explicit OptimizerHandler(Optimizer& optimizer) : optimizer_(optimizer) {}
  void save(StateDict& state) override { state = kolo::state(optimizer_); }
  void load(const StateDict& state) override { load_state(optimizer_, state); }
  void rejoin() override {
    if constexpr (Rejoins<Optimizer>) optimizer_.rejoin();
  }

 private:
  Optimizer& optimizer_;
};

/// The same for a ShardedOptimizer. At each commit, every rank gathers the state of all ranks, so
/// that any rank may be lost.
template <typename Optimizer>
class ShardedOptimizerHandler : public StateHandler {
 public:
  explicit ShardedOptimizerHandler(Optimizer& optimizer) : optimizer_(optimizer) {}
  void save(StateDict& state) override { state = optimizer_.full_state(); }
  void load(const StateDict& state) override { optimizer_.load_full_state(state); }
  [[nodiscard]] bool saves_together() const override { return true; }
  void rejoin() override { optimizer_.rejoin(); }

 private:
  Optimizer& optimizer_;
};

}  // namespace detail

template <AnyModule Module>
struct HandlerFor<Module> {
  static std::unique_ptr<StateHandler> make(Module& module) {
    return std::make_unique<detail::ModuleHandler<Module>>(module);
  }
};

template <>
struct HandlerFor<::torch::Tensor> {
  static std::unique_ptr<StateHandler> make(::torch::Tensor& tensor) {
    return std::make_unique<detail::TorchTensorHandler>(tensor);
  }
};

template <std::derived_from<::torch::optim::Optimizer> Optimizer>
struct HandlerFor<Optimizer> {
  static std::unique_ptr<StateHandler> make(Optimizer& optimizer) {
    if constexpr (requires { optimizer.load_full_state(optimizer.full_state()); }) {
      return std::make_unique<detail::ShardedOptimizerHandler<Optimizer>>(optimizer);
    } else {
      return std::make_unique<detail::OptimizerHandler<Optimizer>>(optimizer);
    }
  }
};

}  // namespace kolo::elastic
