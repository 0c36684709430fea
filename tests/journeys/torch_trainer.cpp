// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/ivalue.h>  // first: see kolo/torch/optimizer.hpp

#include "torch_trainer.hpp"

#include <torch/nn/module.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>
#include <torch/version.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "kolo/torch.hpp"
#include "support/random.hpp"
#include "surroundings.hpp"
#include "torch_model.hpp"

namespace kolo::internal::journeys {
namespace {

using Sgd = ::torch::optim::SGD;
using SgdState = ::torch::optim::SGDParamState;
using ::torch::Tensor;

void assign(const std::vector<float>& values, const Tensor& tensor) {
  std::ranges::copy(values, elements_of(tensor).begin());
}

Tensor inner_product(const Tensor& parameter, const Tensor& gradient) {
  return parameter.flatten().dot(gradient.flatten());
}

class TorchScaler : public Scaler {
 public:
  explicit TorchScaler(const Program& program) : scaler(scale_options(program)) {}

  void update() override { scaler.update(); }
  [[nodiscard]] std::string state() const override { return scaler.state(); }
  void load_state(const std::string& state) override { scaler.load_state(state); }

  GradScaler scaler;
};

/// SGD whose gradients are reduced by a DistributedOptimizer, or else by the module's
/// DistributedGradients.
class TorchTrainer : public Trainer {
 public:
  explicit TorchTrainer(const TrainerArguments& arguments)
      : arguments_(arguments),
        gradients_(arguments.program, arguments_.model, arguments.number),
        model_(arguments_.program, arguments_.model),
        parameters_(model_.parameters()),
        scaler_(static_cast<TorchScaler*>(arguments_.scaler.get())) {
    if (arguments_.program.has(Feature::shared_memory))
      model_.with_module([&](auto& module) { shared_.emplace(module); });
    Sgd sgd(parameters_, ::torch::optim::SGDOptions(0.1).momentum(arguments_.model.momentum));
    if (arguments_.program.has(Feature::sharded)) {
      sharded_.emplace(std::move(sgd), model_.named_parameters(), options_of(arguments_),
                       sharding_of(arguments_));
    } else if (arguments_.program.has(Feature::module_gradients)) {
      plain_.emplace(std::move(sgd));
      model_.with_module([&](auto& module) { reducer_.emplace(module, options_of(arguments_)); });
    } else {
      wrapped_.emplace(std::move(sgd), model_.named_parameters(), options_of(arguments_));
    }
    model_.unfreeze();
  }

  void set_state(const ModelState& state) override {
    const ::torch::NoGradGuard no_grad;
    given_ = state;
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      assign(state[i].values, parameters_[i].detach());
      if (arguments_.model.momentum == 0.0 || arguments_.model.frozen[i]) continue;
      auto momentum = std::make_unique<SgdState>();
      const Tensor whole = ::torch::zeros_like(parameters_[i].detach());
      assign(state[i].velocities, whole);
      momentum->momentum_buffer(part_of(i, whole).clone());
      optimizer().state()[optimizer_key(stepped(i))] = std::move(momentum);
    }
  }

  [[nodiscard]] ModelState state() const override {
    ModelState state;
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      const Tensor& parameter = parameters_[i];
      const auto values = elements_of(parameter.detach());
      Parameter& saved = state.emplace_back();
      saved.values.assign(values.begin(), values.end());
      saved.velocities.assign(values.size(), 0.0F);
      const auto& states = optimizer().state();
      const auto found = states.find(optimizer_key(stepped(i)));
      if (found == states.end() || arguments_.model.momentum == 0.0) continue;
      const Tensor& buffer = static_cast<const SgdState&>(*found->second).momentum_buffer();
      if (!buffer.defined()) continue;
      std::ranges::copy(elements_of(buffer),
                        saved.velocities.begin() + (sharded_ ? begin_of_part(i) : 0));
      if (sharded_) gather_parts(saved.velocities, arguments_);
    }
    return state;
  }

  void broadcast(int root) override {
    model_.with_module([&](auto& module) { broadcast_parameters(module, root, arguments_.set); });
    if (sharded_) return broadcast_given(root);
    broadcast_optimizer_state(optimizer(), root, arguments_.set);
  }

  void zero_gradients() override {
    if (arguments_.program.has(Feature::expanded)) {
      for (const Tensor& parameter : parameters_)  // LibTorch refuses to zero a view
        if (parameter.grad().defined() && parameter.grad().is_view())
          parameter.mutable_grad().reset();
    }
    if (wrapped_) wrapped_->zero_grad();
    if (sharded_) sharded_->zero_grad();
    if (plain_) plain_->zero_grad();
    // LibTorch passes over a parameter without a gradient although it has momentum. The reference
    // does so only with the feature.
    for (const Tensor& parameter : parameters_) {
      if (!parameter.requires_grad()) continue;
      if (arguments_.program.has(Feature::set_to_none))
        parameter.mutable_grad().reset();
      else if (!parameter.grad().defined())
        parameter.mutable_grad() = ::torch::zeros_like(parameter.detach());
    }
  }

  void backward(const Pass& pass) override {
    const Program& program = arguments_.program;
    const Model& model = arguments_.model;
    if (pass.number == 0 && replaces(pass)) replace_parameters();
    const int passes = pass.epoch.passes(pass.step, arguments_.rank, model.accumulation);
    const bool divides = model.accumulation == Accumulation::mean && model.passes_per_step == 1;
    const auto overflow = gradients_.overflow(pass.epoch, pass.step, arguments_.rank);
    Tensor loss = ::torch::zeros({});
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      const Tensor& parameter = parameters_[i];
      if (!gradients_.used(i, pass.epoch, pass.step, arguments_.rank)) {
        if (pass.number == 0) maybe_expand(parameter);
        continue;
      }
      const Tensor gradient = ::torch::zeros_like(parameter.detach());
      const std::span<float> elements = elements_of(gradient);
      gradients_.add(i, elements_of(parameter.detach()), pass.examples, elements);
      if (overflow && overflow->parameter == i && overflow->pass == pass.number)
        elements[overflow->element] = overflow->value;
      if (divides) gradient.div_(passes);
      // Owns what it uses: a checkpoint calls it again in backward.
      const auto add = [parameter, gradient, twice = model.shared[i]](const Tensor& so_far) {
        return so_far + (twice ? inner_product(parameter, 0.5 * gradient) +
                                     inner_product(parameter, 0.5 * gradient)
                               : inner_product(parameter, gradient));
      };
      loss = within_checkpoints(depth_of_checkpoints(pass, i), add, loss);
    }
    // Other ranks wait for this backward.
    if (!loss.requires_grad()) loss = loss + 0.0 * parameters_.back().sum();
    std::optional<NoSync> local;
    const bool is_last = pass.number + 1 == passes;
    if (program.has(Feature::no_sync) && (!is_last || leaves_reduction_to_step(pass)))
      local.emplace(sharded_   ? sharded_->no_sync()
                    : wrapped_ ? wrapped_->no_sync()
                               : reducer_->no_sync());
    if (scaler_ != nullptr) loss = scaler_->scaler.scale(loss);
    loss.backward();
    // Before other ranks are waited for in another model's backward.
    if (is_last && program.steps_together()) synchronize();
  }

  void synchronize() override {
    if (wrapped_) wrapped_->synchronize();
    if (sharded_) sharded_->synchronize();
    if (reducer_) reducer_->synchronize();
  }

  void clip(double max_norm) override {
    with_optimizer([&](auto& each) {
      if (scaler_ != nullptr) scaler_->scaler.unscale(each);
    });
    double norm = 0.0;
    if (sharded_) norm = clip_grad_norm(*sharded_, 1e30);
    if (wrapped_) norm = clip_grad_norm(*wrapped_, 1e30);
    std::vector<std::span<float>> spans;
    std::vector<Tensor> with_gradient;
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      const Tensor& parameter = stepped(i);
      if (!parameter.grad().defined()) continue;
      if (plain_ && parameter.grad().is_view())
        parameter.mutable_grad() = parameter.grad().clone(at::MemoryFormat::Contiguous);
      spans.push_back(elements_of(parameter.grad()));
      with_gradient.push_back(parameter);
    }
    if (sharded_) {
      const double joint = joint_norm(spans, arguments_);
      require_norm(norm, joint);
      return journeys::clip(spans, max_norm, joint);
    }
    const double wanted = norm_of(spans);
    if (wrapped_) require_norm(norm, wanted);
    // In float.
    if (plain_)
      require_norm(::torch::nn::utils::clip_grad_norm_(with_gradient, 1e30), wanted, 1e-4);
    journeys::clip(spans, max_norm);
  }

  void discard() override {
    if (wrapped_) wrapped_->skip_step();
    if (sharded_) sharded_->skip_step();
    if (reducer_) reducer_->synchronize();
  }

  void step(double learning_rate) override {
    set_learning_rate(optimizer(), learning_rate);
    if (reducer_) reducer_->synchronize();
    with_optimizer([&](auto& each) {
      if (scaler_ == nullptr) {
        each.step();
      } else {
        scaler_->scaler.step(each);
      }
    });
  }

  bool throw_in_hook(const Event& event) override {
    const std::vector<int> throwers = throwers_of(arguments_, event);
    const bool alone = static_cast<int>(throwers.size()) < arguments_.program.ranks;
    const bool throws = std::ranges::find(throwers, arguments_.rank) != throwers.end();
    Tensor loss = ::torch::zeros({});
    const auto first = std::ranges::find(arguments_.model.frozen, false);
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      if (arguments_.model.frozen[i]) continue;
      const Tensor copy = parameters_[i] * 1.0;
      // Backward begins with the last parameter, and reaches the first at its end. The odd rank
      // throws after the first gradient is complete, if others do not throw or at once.
      const bool begins = i + 1 == parameters_.size() &&
                          (alone ? arguments_.rank != event.odd : event.variant % 4 == 0);
      if (throws &&
          (begins || i == static_cast<std::size_t>(first - arguments_.model.frozen.begin())))
        copy.register_hook(
            [](const Tensor& /*gradient*/) -> Tensor { throw std::runtime_error("in a hook"); });
      loss = loss + copy.sum();
    }
    try {
      loss.backward();
    } catch (const BackwardFailed& error) {
      if (!throws && error.ranks() == std::vector<int>{throwers.front()}) return true;
      throw;
    } catch (const std::runtime_error&) {
      if (throws) return true;
      throw;
    }
    if (!throws && throwers.empty()) return true;
    throw Unexpected("an exception in a hook was lost");
  }

 private:
  // As the type that it has.
  template <typename Use>
  void with_optimizer(const Use& use) {
    if (sharded_) return use(*sharded_);
    if (wrapped_) return use(*wrapped_);
    use(*plain_);
  }

  // This rank's own choice.
  [[nodiscard]] int depth_of_checkpoints(const Pass& pass, std::size_t parameter) const {
    if (!arguments_.program.has(Feature::checkpointed)) return 0;
    return static_cast<int>(
        campaign::hash({arguments_.program.seed, 67, arguments_.number, parameter,
                        static_cast<std::uint64_t>(pass.epoch.number() * 100 + pass.step),
                        static_cast<std::uint64_t>(arguments_.rank)}) %
        3);
  }

  // All ranks alike, in a step that all of them take.
  [[nodiscard]] bool replaces(const Pass& pass) const {
    return arguments_.program.has(Feature::replaced) && pass.step < pass.epoch.fewest_steps() &&
           campaign::hash({arguments_.program.seed, 68, arguments_.number,
                           static_cast<std::uint64_t>(pass.epoch.number() * 100 + pass.step)}) %
                   3 ==
               0;
  }
  void replace_parameters() {
    model_.replace();
    auto& states = optimizer().state();
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      if (const auto found = states.find(optimizer_key(parameters_[i])); found != states.end()) {
        auto momentum = std::move(found->second);
        states.erase(found);
        states[optimizer_key(model_.parameters()[i])] = std::move(momentum);
      }
      parameters_[i] = model_.parameters()[i];
      optimizer().param_groups().front().params()[i] = parameters_[i];
    }
    zero_gradients();
  }

  // Zeros, as the gradient of an unused parameter is here anyway. This rank's own choice. Backward
  // may reach the last parameter, and adds to no such gradient.
  void maybe_expand(const Tensor& parameter) const {
    if (!arguments_.program.has(Feature::expanded) || !parameter.requires_grad() ||
        parameter.is_same(parameters_.back()) || arguments_.program.has(Feature::set_to_none) ||
        arguments_.rank % 2 == 1)
      return;
    parameter.mutable_grad() = ::torch::zeros({1}).expand(parameter.sizes());
  }

  [[nodiscard]] Sgd& optimizer() const {
    if (sharded_) return *sharded_;
    return wrapped_ ? *wrapped_ : *plain_;
  }

  // The tensor that the optimizer steps: a parameter or this rank's part of it.
  [[nodiscard]] const Tensor& stepped(std::size_t i) const {
    return optimizer().param_groups().front().params()[i];
  }
  [[nodiscard]] std::ptrdiff_t begin_of_part(std::size_t i) const {
    if (stepped(i).numel() == 0) return 0;
    return stepped(i).data_ptr<float>() - parameters_[i].data_ptr<float>();
  }
  [[nodiscard]] Tensor part_of(std::size_t i, const Tensor& whole) const {
    return sharded_ ? whole.flatten().narrow(0, begin_of_part(i), stepped(i).numel()) : whole;
  }

  // After `set_state`: parts of the root's momentum.
  void broadcast_given(int root) {
    if (!arguments_.set.contains(arguments_.rank)) return;
    ModelState state = given_;
    for (std::size_t i = 0; i < state.size(); ++i) {
      kolo::broadcast(state[i].velocities, root,
                      {.name = "velocities", .process_set = arguments_.set});
      const auto values = elements_of(parameters_[i].detach());
      state[i].values.assign(values.begin(), values.end());
    }
    set_state(state);
  }

  // This rank's own choice.
  [[nodiscard]] bool leaves_reduction_to_step(const Pass& pass) const {
    return campaign::hash({arguments_.program.seed, 66, arguments_.number,
                           static_cast<std::uint64_t>(pass.epoch.number() * 100 + pass.step),
                           static_cast<std::uint64_t>(arguments_.rank)}) %
               3 ==
           0;
  }

  TrainerArguments arguments_;
  Gradients gradients_;
  TorchModel model_;
  std::vector<Tensor> parameters_;  // of the model
  ModelState given_{};              // by `set_state`
  mutable std::optional<DistributedOptimizer<Sgd>> wrapped_{};
  mutable std::optional<ShardedOptimizer<Sgd>> sharded_{};
  mutable std::optional<Sgd> plain_{};
  std::optional<SharedGradients> shared_{};
  std::optional<DistributedGradients> reducer_{};
  TorchScaler* scaler_;  // null without a loss scale
};

}  // namespace

GradScaler* grad_scaler_of(Scaler* scaler) {
  return scaler == nullptr ? nullptr : &static_cast<TorchScaler*>(scaler)->scaler;
}

std::vector<int> throwers_of(const TrainerArguments& arguments, const Event& event) {
  std::vector<int> throwers;
  const bool is_some = event.variant % 2 == 0 && arguments.model.passes_per_step == 1 &&
                       std::ranges::count(arguments.model.frozen, false) > 1;
  for (int rank = 0; rank < arguments.program.ranks; ++rank) {
    const bool is_odd = event.variant % 16 < 8 ? rank == event.odd : (rank - event.odd) % 2 == 0;
    const bool is_partner = rank == arguments.rank || (arguments.set.contains(rank) &&
                                                       arguments.set.contains(arguments.rank));
    if (!is_some || (is_odd && is_partner)) throwers.push_back(rank);
  }
  return throwers;
}

Maker torch_maker() {
  return {
      .trainer = [](const TrainerArguments& arguments) -> std::unique_ptr<Trainer> {
        if (arguments.program.has(Feature::fully_sharded) && arguments.set.contains(arguments.rank))
          return make_fully_sharding(arguments);
        return std::make_unique<TorchTrainer>(arguments);
      },
      .scaler = [](const Program& program) -> std::shared_ptr<Scaler> {
        return std::make_shared<TorchScaler>(program);
      }};
}

}  // namespace kolo::internal::journeys
