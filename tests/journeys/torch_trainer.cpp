// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/ivalue.h>  // first: see kolo/torch/optimizer.hpp

#include "torch_trainer.hpp"

#include <torch/nn/module.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>
#include <torch/version.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>
#include <utility>

#include "kolo/torch.hpp"
#include "surroundings.hpp"

namespace kolo::internal::journeys {
namespace {

using Sgd = ::torch::optim::SGD;
using SgdState = ::torch::optim::SGDParamState;
using ::torch::Tensor;

auto key_of(const Tensor& parameter) {
#if TORCH_VERSION_MAJOR >= 2
  return static_cast<void*>(parameter.unsafeGetTensorImpl());
#else
  return c10::guts::to_string(parameter.unsafeGetTensorImpl());
#endif
}

std::span<float> elements_of(const Tensor& tensor) {
  return {tensor.data_ptr<float>(), static_cast<std::size_t>(tensor.numel())};
}

void assign(const std::vector<float>& values, const Tensor& tensor) {
  std::ranges::copy(values, elements_of(tensor).begin());
}

class TorchTrainer : public Trainer {
 public:
  explicit TorchTrainer(const TrainerArguments& arguments)
      : arguments_(arguments), gradients_(arguments.program, arguments_.model, arguments.number) {
    NamedParameters names;
    for (std::size_t i = 0; i < arguments_.model.sizes.size(); ++i) {
      parameters_.push_back(::torch::zeros({arguments_.model.sizes[i]}));
      parameters_.back().set_requires_grad(!arguments_.model.frozen[i]);
      names.emplace_back(name_of(i), parameters_.back());
    }
    optimizer_.emplace(
        Sgd(parameters_, ::torch::optim::SGDOptions(0.1).momentum(arguments_.model.momentum)),
        names, options_of(arguments_));
  }

  void set_state(const ModelState& state) override {
    const ::torch::NoGradGuard no_grad;
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      assign(state[i].values, parameters_[i].detach());
      if (arguments_.model.momentum == 0.0 || arguments_.model.frozen[i]) continue;
      auto momentum = std::make_unique<SgdState>();
      momentum->momentum_buffer(::torch::zeros_like(parameters_[i].detach()));
      assign(state[i].velocities, momentum->momentum_buffer());
      optimizer_->state()[key_of(parameters_[i])] = std::move(momentum);
    }
  }

  [[nodiscard]] ModelState state() const override {
    ModelState state;
    for (const Tensor& parameter : parameters_) {
      const auto values = elements_of(parameter.detach());
      Parameter& saved = state.emplace_back();
      saved.values.assign(values.begin(), values.end());
      saved.velocities.assign(values.size(), 0.0F);
      const auto& states = optimizer_->state();
      const auto found = states.find(key_of(parameter));
      if (found == states.end() || arguments_.model.momentum == 0.0) continue;
      const Tensor& buffer = static_cast<const SgdState&>(*found->second).momentum_buffer();
      if (!buffer.defined()) continue;
      std::ranges::copy(elements_of(buffer), saved.velocities.begin());
    }
    return state;
  }

  void broadcast(int root) override {
    ModuleTensors tensors;
    for (std::size_t i = 0; i < parameters_.size(); ++i) tensors.insert(name_of(i), parameters_[i]);
    broadcast_parameters(tensors, root, arguments_.set);
    broadcast_optimizer_state(*optimizer_, root, arguments_.set);
  }

  void zero_gradients() override {
    optimizer_->zero_grad();
    if (arguments_.set.contains(arguments_.rank)) return;
    // Outside its set the optimizer is LibTorch's own, which passes over a parameter without a
    // gradient although it has momentum. The reference does not.
    for (const Tensor& parameter : parameters_)
      if (parameter.requires_grad() && !parameter.grad().defined())
        parameter.mutable_grad() = ::torch::zeros_like(parameter.detach());
  }

  void backward(const Pass& pass) override {
    Tensor loss = ::torch::zeros({});
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      if (!gradients_.used(i, pass.epoch, pass.step, arguments_.rank)) continue;
      const Tensor& parameter = parameters_[i];
      const Tensor gradient = ::torch::zeros_like(parameter.detach());
      gradients_.add(i, elements_of(parameter.detach()), pass.examples, elements_of(gradient));
      if (arguments_.model.shared[i]) {
        loss = loss + parameter.dot(0.5 * gradient) + parameter.dot(0.5 * gradient);
      } else {
        loss = loss + parameter.dot(gradient);
      }
    }
    if (loss.requires_grad()) loss.backward();
  }

  void synchronize() override { optimizer_->synchronize(); }

  void clip(double max_norm) override {
    std::vector<std::span<float>> spans;
    double squares = 0.0;
    for (const Tensor& parameter : parameters_)
      if (parameter.grad().defined()) spans.push_back(elements_of(parameter.grad()));
    for (const auto span : spans)
      for (const float value : span) squares += static_cast<double>(value) * value;
    const double norm = clip_grad_norm(*optimizer_, 1e30);
    if (std::abs(norm - std::sqrt(squares)) > 1e-9 * norm)
      throw Unexpected("clip_grad_norm returns " + std::to_string(norm));
    journeys::clip(spans, max_norm);
  }

  void discard() override { skip(*optimizer_); }

  void step(double learning_rate) override {
    set_learning_rate(*optimizer_, learning_rate);
    optimizer_->step();
  }

  bool throw_in_hook(const Epoch& /*epoch*/, int step) override {
    Tensor loss = ::torch::zeros({});
    const std::size_t thrower = static_cast<std::size_t>(step) % parameters_.size();
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      if (arguments_.model.frozen[i]) continue;
      const Tensor copy = parameters_[i] * 1.0;
      if (i == thrower || i + 1 == parameters_.size())
        copy.register_hook(
            [](const Tensor& /*gradient*/) -> Tensor { throw std::runtime_error("in a hook"); });
      loss = loss + copy.sum();
    }
    try {
      loss.backward();
    } catch (const std::runtime_error&) {
      return true;
    }
    throw Unexpected("an exception in a hook was lost");
  }

 private:
  [[nodiscard]] std::string name_of(std::size_t parameter) const {
    return name_of_parameter(arguments_.program, parameter);
  }

  template <typename Optimizer>
  static void skip(Optimizer& optimizer) {
    if constexpr (requires { optimizer.skip_step(); }) {
      optimizer.skip_step();
    } else {
      optimizer.zero_grad();
    }
  }

  TrainerArguments arguments_;
  Gradients gradients_;
  std::vector<Tensor> parameters_{};
  mutable std::optional<DistributedOptimizer<Sgd>> optimizer_{};
};

}  // namespace

std::unique_ptr<Trainer> make_torch_trainer(const TrainerArguments& arguments) {
  return std::make_unique<TorchTrainer>(arguments);
}

}  // namespace kolo::internal::journeys
