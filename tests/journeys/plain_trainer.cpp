// SPDX-License-Identifier: Apache-2.0
// A trainer without a framework.
#include <algorithm>
#include <cmath>
#include <optional>
#include <span>
#include <utility>

#include "kolo/optimizer.hpp"
#include "kolo/sharded_optimizer.hpp"
#include "kolo/shared_memory.hpp"
#include "kolo/training/loss_scale.hpp"
#include "support/random.hpp"
#include "trainer.hpp"

namespace kolo::internal::journeys {
namespace {

/// A gradient, in shared memory or not.
class Buffer {
 public:
  Buffer(std::size_t size, bool shared) {
    if (shared) shared_.emplace(size, 0.0F);
    if (!shared) own_.assign(size, 0.0F);
  }
  [[nodiscard]] std::span<float> span() {
    return shared_ ? std::span<float>(*shared_) : std::span<float>(own_);
  }

 private:
  std::vector<float> own_{};
  std::optional<SharedVector<float>> shared_{};
};

/// The optimizer inside kolo::DistributedOptimizer.
struct Sgd {
  const Program& program;
  const Model& model;
  ModelState state{};
  std::vector<Buffer> buffers{};
  double learning_rate = 0.0;

  std::vector<NamedTensor> gradients() {
    std::vector<NamedTensor> named;
    for (std::size_t i = 0; i < buffers.size(); ++i)
      named.push_back({name_of_parameter(program, i), view(i, buffers[i].span())});
    return named;
  }
  std::vector<NamedTensor> parameters() {
    std::vector<NamedTensor> named;
    for (std::size_t i = 0; i < buffers.size(); ++i)
      named.push_back({name_of_parameter(program, i), view(i, state_or_zeros(i))});
    return named;
  }
  void step() {
    for (std::size_t i = 0; i < state.size(); ++i)
      if (!model.frozen[i]) apply(state[i], buffers[i].span(), learning_rate, model.momentum);
  }
  void step(std::span<const Shard> shards) {
    for (const Shard& shard : shards) {
      if (model.frozen[shard.parameter]) continue;
      const auto begin = static_cast<std::size_t>(shard.begin);
      const auto size = static_cast<std::size_t>(shard.size());
      Parameter& whole = state[shard.parameter];
      const auto values = std::span<float>(whole.values).subspan(begin, size);
      const auto velocities = std::span<float>(whole.velocities).subspan(begin, size);
      Parameter part{.values = {values.begin(), values.end()},
                     .velocities = {velocities.begin(), velocities.end()}};
      apply(part, buffers[shard.parameter].span().subspan(begin, size), learning_rate,
            model.momentum);
      std::ranges::copy(part.values, values.begin());
      std::ranges::copy(part.velocities, velocities.begin());
    }
  }

 private:
  [[nodiscard]] TensorView view(std::size_t i, std::span<float> elements) const {
    return {elements.data(), shape_of_parameter(program, model.sizes[i])};
  }
  // Before the first state is set.
  std::span<float> state_or_zeros(std::size_t i) {
    return i < state.size() ? std::span<float>(state[i].values) : buffers[i].span();
  }
};

class PlainScaler : public Scaler {
 public:
  explicit PlainScaler(const Program& program) : scale_(scale_options(program)) {}

  [[nodiscard]] float value() const { return static_cast<float>(scale_.value()); }
  void found(bool overflow) { overflow_ = overflow_ || overflow; }

  void update() override { scale_.update(std::exchange(overflow_, false)); }
  [[nodiscard]] std::string state() const override { return scale_.state(); }
  void load_state(const std::string& state) override { scale_.load_state(state); }

 private:
  LossScale scale_;
  bool overflow_ = false;  // since the last update
};

class PlainTrainer : public Trainer {
 public:
  explicit PlainTrainer(const TrainerArguments& arguments)
      : arguments_(arguments),
        gradients_(arguments.program, arguments_.model, arguments.number),
        random_(campaign::hash({arguments.program.seed, arguments.number,
                                static_cast<std::uint64_t>(arguments.rank)})),
        sgd_{.program = arguments.program, .model = arguments_.model},
        scaler_(static_cast<PlainScaler*>(arguments_.scaler.get())) {
    for (const int size : arguments_.model.sizes)
      sgd_.buffers.emplace_back(static_cast<std::size_t>(size),
                                arguments.program.has(Feature::shared_memory));
    if (arguments.program.has(Feature::sharded)) {
      sharded_.emplace(sgd_, options_of(arguments_), sharding_of(arguments_));
    } else {
      optimizer_.emplace(sgd_, options_of(arguments_));
    }
  }

  void set_state(const ModelState& state) override { sgd_.state = state; }
  [[nodiscard]] ModelState state() const override {
    ModelState state = sgd_.state;
    if (sharded_)
      for (Parameter& parameter : state) gather_parts(parameter.velocities, arguments_);
    return state;
  }

  void broadcast(int root) override {
    std::vector<NamedTensor> tensors;
    for (std::size_t i = 0; i < sgd_.state.size(); ++i) {
      const std::string name = name_of_parameter(arguments_.program, i);
      tensors.push_back({name, TensorView(sgd_.state[i].values)});
      tensors.push_back({name + ".velocity", TensorView(sgd_.state[i].velocities)});
    }
    broadcast_parameters(tensors, root, arguments_.set);
  }

  void zero_gradients() override {
    for (Buffer& buffer : sgd_.buffers) std::ranges::fill(buffer.span(), 0.0F);
  }

  void backward(const Pass& pass) override {
    std::vector<std::size_t> used;
    for (std::size_t i = 0; i < sgd_.buffers.size(); ++i) {
      if (!gradients_.used(i, pass.epoch, pass.step, arguments_.rank)) continue;
      add_gradient(i, pass);
      if (!random_.once_in(3)) used.push_back(i);
    }
    const Program& program = arguments_.program;
    if (pass.number == program.passes - 1) {
      random_.shuffle(used);
      for (const std::size_t i : used)
        with_optimizer([&](auto& each) { each.ready(name_of_parameter(program, i)); });
    } else if (pass.number + 1 <
               pass.epoch.passes(pass.step, arguments_.rank, arguments_.model.accumulation)) {
      with_optimizer([](auto& each) { each.end_pass(); });
    }
  }

  void synchronize() override {
    if (sharded_ || arguments_.program.has(Feature::token)) {
      with_optimizer([&](auto& each) { reduced_.emplace(each.reduce()); });
    } else {
      optimizer_->synchronize();
      synchronized_ = true;
    }
  }

  void clip(double max_norm) override {
    if (scaler_ != nullptr) max_norm *= scaler_->value();
    std::vector<std::span<float>> spans;
    if (sharded_) {
      for (const Shard& shard : sharded_->shards())
        spans.push_back(sgd_.buffers[shard.parameter].span().subspan(
            static_cast<std::size_t>(shard.begin), static_cast<std::size_t>(shard.size())));
      const double joint = joint_norm(spans, arguments_);
      require_norm(sharded_->clip_grad_norm(*reduced_, 1e30), joint);
      return journeys::clip(spans, max_norm, joint);
    }
    for (Buffer& buffer : sgd_.buffers) spans.push_back(buffer.span());
    const double wanted = norm_of(spans);
    if (reduced_) require_norm(optimizer_->clip_grad_norm(*reduced_, 1e30), wanted);
    journeys::clip(spans, max_norm, wanted);
  }

  void discard() override {
    synchronized_ = false;
    if (reduced_) return reduced_.reset();
    with_optimizer([](auto& each) { each.discard(); });
  }

  void step(double learning_rate) override {
    sgd_.learning_rate = learning_rate;
    if (scaler_ != nullptr && !unscale()) return discard();
    synchronized_ = false;
    with_optimizer([&](auto& each) {
      if (!reduced_) return each.step();
      each.step(std::move(*reduced_));
      reduced_.reset();
    });
  }

  bool throw_in_hook(const Event& /*event*/) override { return false; }

 private:
  template <typename Use>
  void with_optimizer(const Use& use) {
    if (sharded_) return use(*sharded_);
    use(*optimizer_);
  }

  void add_gradient(std::size_t i, const Pass& pass) {
    const std::span<float> gradient = sgd_.buffers[i].span();
    if (scaler_ == nullptr) return gradients_.add(i, sgd_.state[i].values, pass.examples, gradient);
    std::vector<float> own(gradient.size(), 0.0F);
    gradients_.add(i, sgd_.state[i].values, pass.examples, own);
    const auto overflow = gradients_.overflow(pass.epoch, pass.step, arguments_.rank);
    if (overflow && overflow->parameter == i && overflow->pass == pass.number)
      own[overflow->element] = overflow->value;
    for (std::size_t j = 0; j < own.size(); ++j) gradient[j] += scaler_->value() * own[j];
  }

  // Divides the reduced gradients by the scale. False if they are not finite, on all ranks alike.
  bool unscale() {
    if (!synchronized_ && !reduced_) synchronize();
    std::vector<std::span<float>> spans;
    for (Buffer& buffer : sgd_.buffers) spans.push_back(buffer.span());
    const double norm = sharded_ ? sharded_->clip_grad_norm(*reduced_, 1e30) : norm_of(spans);
    scaler_->found(!std::isfinite(norm));
    for (const std::span<float> gradient : spans)
      for (float& element : gradient) element /= scaler_->value();
    return std::isfinite(norm);
  }

  TrainerArguments arguments_;
  Gradients gradients_;
  campaign::Random random_;  // differs between ranks
  Sgd sgd_;
  std::optional<DistributedOptimizer<Sgd>> optimizer_{};
  std::optional<ShardedOptimizer<Sgd>> sharded_{};
  std::optional<ReducedGradients> reduced_{};
  bool synchronized_ = false;  // without `reduced_`
  PlainScaler* scaler_;        // null without a loss scale
};

}  // namespace

Maker plain_maker() {
  return {.trainer = [](const TrainerArguments& arguments) -> std::unique_ptr<Trainer> {
            return std::make_unique<PlainTrainer>(arguments);
          },
          .scaler = [](const Program& program) -> std::shared_ptr<Scaler> {
            return std::make_shared<PlainScaler>(program);
          }};
}

}  // namespace kolo::internal::journeys
