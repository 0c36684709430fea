// SPDX-License-Identifier: Apache-2.0
// A trainer without a framework.
#include <algorithm>
#include <cmath>
#include <optional>
#include <span>
#include <utility>

#include "differential/random.hpp"
#include "kolo/optimizer.hpp"
#include "kolo/sharded_optimizer.hpp"
#include "kolo/shared_memory.hpp"
#include "support/halves_hook.hpp"
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

/// What kolo::DistributedOptimizer wraps.
struct Sgd {
  const Program& program;
  const Model& model;
  ModelState state{};
  std::vector<Buffer> buffers{};
  double learning_rate = 0.0;

  std::vector<NamedTensor> gradients() {
    std::vector<NamedTensor> named;
    for (std::size_t i = 0; i < buffers.size(); ++i)
      named.push_back({name_of_parameter(program, i), TensorView(buffers[i].span())});
    return named;
  }
  std::vector<NamedTensor> parameters() {
    std::vector<NamedTensor> named;
    for (std::size_t i = 0; i < buffers.size(); ++i)
      named.push_back({name_of_parameter(program, i), TensorView(state_or_zeros(i))});
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
  // Before the first state is set.
  std::span<float> state_or_zeros(std::size_t i) {
    return i < state.size() ? std::span<float>(state[i].values) : buffers[i].span();
  }
};

class PlainTrainer : public Trainer {
 public:
  explicit PlainTrainer(const TrainerArguments& arguments)
      : arguments_(arguments),
        gradients_(arguments.program, arguments_.model, arguments.number),
        random_(differential::hash({arguments.program.seed, arguments.number,
                                    static_cast<std::uint64_t>(arguments.rank)})),
        sgd_{.program = arguments.program, .model = arguments_.model} {
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
      gradients_.add(i, sgd_.state[i].values, pass.examples, sgd_.buffers[i].span());
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
    }
  }

  void clip(double max_norm) override {
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
    if (reduced_) {
      const double wanted = norm_of(spans);
      require_norm(optimizer_->clip_grad_norm(*reduced_, 1e30), wanted);
    }
    journeys::clip(spans, max_norm);
  }

  void discard() override {
    if (reduced_) return reduced_.reset();
    with_optimizer([](auto& each) { each.discard(); });
  }

  void step(double learning_rate) override {
    sgd_.learning_rate = learning_rate;
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

  TrainerArguments arguments_;
  Gradients gradients_;
  differential::Random random_;  // of this rank
  Sgd sgd_;
  std::optional<DistributedOptimizer<Sgd>> optimizer_{};
  std::optional<ShardedOptimizer<Sgd>> sharded_{};
  std::optional<ReducedGradients> reduced_{};
};

}  // namespace

DistributedOptimizerOptions options_of(const TrainerArguments& arguments) {
  const Model& model = arguments.model;
  DistributedOptimizerOptions options{.op = model.op,
                                      .compression = model.compression,
                                      .backward_passes_per_step = model.passes_per_step,
                                      .accumulation = model.accumulation,
                                      .gradient_predivide_factor = model.predivide,
                                      .num_groups = model.num_groups,
                                      .process_set = arguments.set};
  if (arguments.program.has(Feature::communication_hook))
    options.hook = std::make_shared<HalvesHook>();
  for (const std::vector<int>& group : model.groups) {
    std::vector<std::string>& names = options.groups.emplace_back();
    for (const int index : group)
      names.push_back(name_of_parameter(arguments.program, static_cast<std::size_t>(index)));
  }
  return options;
}

// A hook leaves whole gradients.
Sharding sharding_of(const TrainerArguments& arguments) {
  return arguments.program.seed % 3 == 0 || arguments.program.has(Feature::communication_hook)
             ? Sharding::state
             : Sharding::state_and_gradients;
}

double joint_norm(std::span<const std::span<float>> parts, const TrainerArguments& arguments) {
  double squares = 0.0;
  for (const auto part : parts)
    for (const float value : part) squares += static_cast<double>(value) * value;
  if (arguments.set.contains(arguments.rank))
    allreduce(squares, {.name = "joint norm", .op = ReduceOp::sum, .process_set = arguments.set});
  return std::sqrt(squares);
}

void gather_parts(std::span<float> whole, const TrainerArguments& arguments) {
  if (!arguments.set.contains(arguments.rank)) return;
  const auto elements = static_cast<std::int64_t>(whole.size());
  std::int64_t begin = 0;
  for (int index = 0; index < arguments.set.rank(); ++index)
    begin += reducescatter_rows(elements, index, arguments.set.size());
  const std::int64_t own = reducescatter_rows(elements, arguments.set.rank(), arguments.set.size());
  const auto gathered =
      allgather(whole.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(own)),
                {.name = "parts of a state", .process_set = arguments.set});
  std::ranges::copy(gathered.values, whole.begin());
}

std::string name_of_parameter(const Program& program, std::size_t index) {
  const std::string name = "layer." + std::to_string(index);
  return program.has(Feature::long_names) ? name + std::string(10000, 'x') : name;
}

std::unique_ptr<Trainer> make_plain_trainer(const TrainerArguments& arguments) {
  return std::make_unique<PlainTrainer>(arguments);
}

}  // namespace kolo::internal::journeys
