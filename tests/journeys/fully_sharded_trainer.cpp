// SPDX-License-Identifier: Apache-2.0
// A model whose parameters are divided among the ranks of its set.
#include <ATen/core/ivalue.h>  // first: see kolo/torch/optimizer.hpp

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>
#include <torch/optim/sgd.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include "kolo/torch.hpp"
#include "support/random.hpp"
#include "surroundings.hpp"
#include "torch_model.hpp"
#include "torch_trainer.hpp"

namespace kolo::internal::journeys {
namespace {

using ::torch::Tensor;
using Sgd = ::torch::optim::SGD;
using SgdState = ::torch::optim::SGDParamState;

/// Adds to the loss what some parameters, whose numbers begin at the first argument, contribute.
using Contribution =
    std::function<Tensor(std::size_t first, const std::vector<Tensor>& parameters, const Tensor&)>;

struct PieceImpl : ::torch::nn::Module {
  PieceImpl(const Model& model, std::size_t begin, std::size_t end) : first(begin) {
    for (std::size_t i = begin; i < end; ++i)
      parameters.push_back(register_parameter("p" + std::to_string(i),
                                              ::torch::zeros({model.sizes[i]}), !model.frozen[i]));
  }
  Tensor forward(const Contribution& contribution, const Tensor& loss) {
    return contribution(first, parameters, loss);
  }

  std::size_t first;
  std::vector<Tensor> parameters{};
};
TORCH_MODULE(Piece);

/// The root has the last parameters by itself, and the others in pieces.
struct WholeImpl : ::torch::nn::Module {
  WholeImpl(const Model& model, std::size_t per_piece) {
    std::size_t begin = 0;
    for (; begin + per_piece < model.sizes.size(); begin += per_piece) {
      pieces.emplace_back(model, begin, begin + per_piece);
      register_module("piece" + std::to_string(begin), pieces.back().ptr());
    }
    rest = Piece(model, begin, model.sizes.size());
    register_module("rest", rest);
  }
  /// `uses`: whether a piece is needed.
  Tensor forward(const Contribution& contribution, const Tensor& start,
                 const std::function<bool(const PieceImpl&)>& uses) {
    Tensor loss = start;
    for (auto& piece : pieces)
      if (uses(*piece)) loss = piece(contribution, loss);
    return rest->forward(contribution, loss);
  }

  std::vector<Sharded<Piece>> pieces{};
  Piece rest{nullptr};
};
TORCH_MODULE(Whole);

class FullySharding : public Trainer {
 private:
  // This rank's elements of a parameter.
  template <typename Values>
  [[nodiscard]] auto part_of(std::size_t i, Values& whole) const {
    std::int64_t begin = 0;
    for (int index = 0; index < arguments_.set.rank(); ++index)
      begin +=
          reducescatter_rows(static_cast<std::int64_t>(whole.size()), index, arguments_.set.size());
    return std::span(whole).subspan(static_cast<std::size_t>(begin),
                                    static_cast<std::size_t>(shards_[i].numel()));
  }

 public:
  explicit FullySharding(const TrainerArguments& arguments)
      : arguments_(arguments),
        gradients_(arguments.program, arguments_.model, arguments.number),
        model_(construct()),
        sharded_(model_, {.op = arguments_.model.op,
                          .compression = arguments_.model.compression,
                          .reshard_after_forward = choice(1) % 2 == 0,
                          .units_ahead = static_cast<int>(choice(2) % 3),
                          .process_set = arguments_.set}),
        shards_(sharded_.parameters()),
        sgd_(shards_, ::torch::optim::SGDOptions(0.1).momentum(arguments_.model.momentum)),
        scaler_(grad_scaler_of(arguments_.scaler.get())) {}

  void set_state(const ModelState& state) override {
    const ::torch::NoGradGuard no_grad;
    given_ = state;
    for (std::size_t i = 0; i < shards_.size(); ++i) {
      std::ranges::copy(part_of(i, state[i].values), elements_of(shards_[i].detach()).begin());
      shards_[i].add_(0);  // counts the change
      if (arguments_.model.momentum == 0.0 || arguments_.model.frozen[i]) continue;
      auto momentum = std::make_unique<SgdState>();
      const Tensor buffer = ::torch::zeros_like(shards_[i].detach());
      std::ranges::copy(part_of(i, state[i].velocities), elements_of(buffer).begin());
      momentum->momentum_buffer(buffer);
      sgd_.state()[optimizer_key(shards_[i])] = std::move(momentum);
    }
  }

  [[nodiscard]] ModelState state() const override {
    ModelState state;
    const FullySharded::Whole whole = sharded_.gather();
    const std::vector<Tensor> parameters = model_->parameters();
    for (std::size_t i = 0; i < shards_.size(); ++i) {
      const auto values = elements_of(parameters[i].detach());
      Parameter& saved = state.emplace_back();
      saved.values.assign(values.begin(), values.end());
      saved.velocities.assign(values.size(), 0.0F);
      const auto found = sgd_.state().find(optimizer_key(shards_[i]));
      if (found == sgd_.state().end() || arguments_.model.momentum == 0.0) continue;
      const Tensor& buffer = static_cast<const SgdState&>(*found->second).momentum_buffer();
      if (!buffer.defined()) continue;
      std::ranges::copy(elements_of(buffer), part_of(i, saved.velocities).begin());
      gather_parts(saved.velocities, arguments_);
    }
    return state;
  }

  void broadcast(int root) override {
    for (Parameter& parameter : given_) {
      kolo::broadcast(parameter.values, root, {.name = "values", .process_set = arguments_.set});
      kolo::broadcast(parameter.velocities, root,
                      {.name = "velocities", .process_set = arguments_.set});
    }
    set_state(ModelState(given_));
  }

  void zero_gradients() override {
    sharded_.zero_grad();
    if (arguments_.program.has(Feature::set_to_none)) return;
    for (const Tensor& shard : shards_)
      if (shard.requires_grad()) shard.mutable_grad() = ::torch::zeros_like(shard.detach());
  }

  void backward(const Pass& pass) override {
    const int passes = pass.epoch.passes(pass.step, arguments_.rank, arguments_.model.accumulation);
    const bool is_last = pass.number + 1 == passes;
    std::optional<NoSync> local;
    // Passes without reduction, or with one each: all ranks alike.
    if (!is_last && choice(3) % 2 == 0) local.emplace(sharded_.no_sync());
    Tensor loss = model_->forward(contribution_of(pass, passes), ::torch::zeros({}),
                                  [&](const PieceImpl& piece) { return uses(pass, piece); });
    has_run_ = true;
    if (scaler_ != nullptr) loss = scaler_->scale(loss);
    loss.backward();
  }

  void synchronize() override {}

  void clip(double max_norm) override {
    if (scaler_ != nullptr) scaler_->unscale(sgd_);
    const double norm = clip_grad_norm(sgd_, 1e30);
    std::vector<std::span<float>> spans;
    for (const Tensor& shard : shards_)
      if (shard.grad().defined()) spans.push_back(elements_of(shard.grad()));
    const double joint = joint_norm(spans, arguments_);
    require_norm(norm, joint);
    journeys::clip(spans, max_norm, joint);
  }

  void discard() override { sharded_.zero_grad(); }

  void step(double learning_rate) override {
    set_learning_rate(sgd_, learning_rate);
    if (scaler_ != nullptr) {
      scaler_->step(sgd_);
    } else {
      sgd_.step();
    }
  }

  bool throw_in_hook(const Event& event) override {
    const std::vector<int> throwers = throwers_of(arguments_, event);
    const bool throws = std::ranges::find(throwers, arguments_.rank) != throwers.end();
    // Backward reaches the last parameter first.
    const auto& frozen = arguments_.model.frozen;
    const auto target = event.variant % 4 == 0 ? static_cast<std::ptrdiff_t>(frozen.size()) - 1
                                               : std::ranges::find(frozen, false) - frozen.begin();
    const auto add = [&](std::size_t first, const std::vector<Tensor>& parameters,
                         const Tensor& loss) {
      Tensor sum = loss;
      for (std::size_t i = 0; i < parameters.size(); ++i) {
        const Tensor copy = parameters[i] * 1.0;
        if (throws && static_cast<std::ptrdiff_t>(first + i) == target)
          copy.register_hook(
              [](const Tensor& /*gradient*/) -> Tensor { throw std::runtime_error("in a hook"); });
        sum = sum + copy.sum();
      }
      return sum;
    };
    try {
      model_->forward(add, ::torch::zeros({}), [](const PieceImpl& /*piece*/) { return true; })
          .backward();
      has_run_ = true;
    } catch (const BackwardFailed& error) {
      if (!throws && error.ranks() == throwers) return true;
      throw;
    } catch (const std::runtime_error&) {
      if (throws) return true;
      throw;
    }
    if (!throws && throwers.empty()) return true;
    throw Unexpected("an exception in a hook was lost");
  }

 private:
  [[nodiscard]] std::uint64_t choice(std::uint64_t number) const {
    return campaign::hash({arguments_.program.seed, 70, arguments_.number, number});
  }

  [[nodiscard]] Sharded<Whole> construct() const {
    std::optional<ConstructSharded> divided;
    if (choice(4) % 2 == 0) divided.emplace(arguments_.set);
    return Sharded<Whole>(arguments_.model, 1 + choice(5) % 2);
  }

  [[nodiscard]] bool used(const Pass& pass, std::size_t i) const {
    return gradients_.used(i, pass.epoch, pass.step, arguments_.rank);
  }

  // The first forward, which finds the order of the units, uses all.
  [[nodiscard]] bool uses(const Pass& pass, const PieceImpl& piece) const {
    if (!has_run_) return true;
    for (std::size_t i = 0; i < piece.parameters.size(); ++i)
      if (used(pass, piece.first + i)) return true;
    return false;
  }

  [[nodiscard]] bool uses_any(const Pass& pass) const {
    for (std::size_t i = 0; i < arguments_.model.sizes.size(); ++i)
      if (used(pass, i)) return true;
    return false;
  }

  [[nodiscard]] Contribution contribution_of(const Pass& pass, int passes) const {
    return [this, &pass, passes](std::size_t first, const std::vector<Tensor>& parameters,
                                 const Tensor& start) {
      Tensor loss = start;
      for (std::size_t i = 0; i < parameters.size(); ++i) {
        const std::size_t number = first + i;
        if (used(pass, number)) loss = add(pass, passes, number, parameters[i], loss);
        // Other ranks wait for a backward of this one.
        if (number + 1 == arguments_.model.sizes.size() && !uses_any(pass))
          loss = loss + 0.0 * parameters[i].sum();
      }
      return loss;
    };
  }

  [[nodiscard]] Tensor add(const Pass& pass, int passes, std::size_t i, const Tensor& parameter,
                           const Tensor& loss) const {
    const Tensor gradient = ::torch::zeros_like(parameter.detach());
    const std::span<float> elements = elements_of(gradient);
    gradients_.add(i, elements_of(parameter.detach()), pass.examples, elements);
    const auto overflow = gradients_.overflow(pass.epoch, pass.step, arguments_.rank);
    if (overflow && overflow->parameter == i && overflow->pass == pass.number)
      elements[overflow->element] = overflow->value;
    if (arguments_.model.accumulation == Accumulation::mean) gradient.div_(passes);
    const auto product = [parameter, gradient,
                          twice = arguments_.model.shared[i]](const Tensor& so_far) {
      const Tensor half = 0.5 * gradient;
      return twice ? so_far + parameter.dot(half) + parameter.dot(half)
                   : so_far + parameter.dot(gradient);
    };
    const int depth =
        arguments_.program.has(Feature::checkpointed)
            ? static_cast<int>(
                  choice(100 + i + 10 * static_cast<std::size_t>(pass.epoch.number())) % 3)
            : 0;
    return within_checkpoints(depth, product, loss);
  }

  TrainerArguments arguments_;
  Gradients gradients_;
  mutable Sharded<Whole> model_;
  FullySharded sharded_;
  std::vector<Tensor> shards_;
  mutable Sgd sgd_;
  GradScaler* scaler_;
  ModelState given_{};
  bool has_run_ = false;
};

}  // namespace

std::unique_ptr<Trainer> make_fully_sharding(const TrainerArguments& arguments) {
  return std::make_unique<FullySharding>(arguments);
}

}  // namespace kolo::internal::journeys
