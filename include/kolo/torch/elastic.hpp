// SPDX-License-Identifier: Apache-2.0
// Elastic training with LibTorch: how kolo::elastic::State holds modules, tensors and optimizers.
#pragma once

// clang 14 can read LibTorch 1.13 in C++20 only if this comes first.
#include <ATen/core/ivalue.h>

#include <torch/nn/module.h>
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

/// Parameters and buffers.
class KOLO_EXPORT ModulePart : public Part {
 public:
  explicit ModulePart(::torch::nn::Module& module) : module_(module) {}
  void save(std::string& bytes) override { bytes = to_bytes(module_); }
  void load(const std::string& bytes) override { from_bytes(bytes, module_); }

 private:
  ::torch::nn::Module& module_;
};

/// Saves the tensor that the variable refers to at the time of the commit, and loads it in place.
class KOLO_EXPORT TorchTensorPart : public Part {
 public:
  explicit TorchTensorPart(::torch::Tensor& tensor) : tensor_(tensor) {}
  void save(std::string& bytes) override;
  void load(const std::string& bytes) override;

 private:
  ::torch::Tensor& tensor_;
};

/// State, such as momentum, and the groups' options, such as the learning rate.
template <typename Optimizer>
class OptimizerPart : public Part {
 public:
  explicit OptimizerPart(Optimizer& optimizer) : optimizer_(optimizer) {}
  void save(std::string& bytes) override { bytes = to_bytes(optimizer_); }
  void load(const std::string& bytes) override { from_bytes(bytes, optimizer_); }
  void rejoin() override {
    if constexpr (Rejoins<Optimizer>) optimizer_.rejoin();
  }

 private:
  Optimizer& optimizer_;
};

/// At each commit, every rank gathers the state of all ranks, so that any rank may be lost.
template <typename Optimizer>
class ShardedOptimizerPart : public Part {
 public:
  explicit ShardedOptimizerPart(Optimizer& optimizer) : optimizer_(optimizer) {}
  void save(std::string& bytes) override { bytes = optimizer_.whole_state(); }
  void load(const std::string& bytes) override { optimizer_.load_whole_state(bytes); }
  [[nodiscard]] bool saves_together() const override { return true; }
  void rejoin() override { optimizer_.rejoin(); }

 private:
  Optimizer& optimizer_;
};

}  // namespace detail

template <std::derived_from<::torch::nn::Module> Module>
struct PartFor<Module> {
  static std::unique_ptr<Part> make(Module& module) {
    return std::make_unique<detail::ModulePart>(module);
  }
};

/// For module holders such as `torch::nn::Linear`.
template <HoldsModule Holder>
struct PartFor<Holder> {
  static std::unique_ptr<Part> make(Holder& holder) {
    return std::make_unique<detail::ModulePart>(*holder);
  }
};

template <>
struct PartFor<::torch::Tensor> {
  static std::unique_ptr<Part> make(::torch::Tensor& tensor) {
    return std::make_unique<detail::TorchTensorPart>(tensor);
  }
};

template <std::derived_from<::torch::optim::Optimizer> Optimizer>
struct PartFor<Optimizer> {
  static std::unique_ptr<Part> make(Optimizer& optimizer) {
    if constexpr (requires { optimizer.load_whole_state(optimizer.whole_state()); }) {
      return std::make_unique<detail::ShardedOptimizerPart<Optimizer>>(optimizer);
    } else {
      return std::make_unique<detail::OptimizerPart<Optimizer>>(optimizer);
    }
  }
};

}  // namespace kolo::elastic
