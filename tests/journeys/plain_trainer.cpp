// SPDX-License-Identifier: Apache-2.0
// A trainer without a framework.
#include <algorithm>
#include <optional>
#include <span>
#include <utility>

#include "differential/random.hpp"
#include "kolo/optimizer.hpp"
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
  void step() {
    for (std::size_t i = 0; i < state.size(); ++i)
      if (!model.frozen[i]) apply(state[i], buffers[i].span(), learning_rate, model.momentum);
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
    optimizer_.emplace(sgd_, options_of(arguments_));
  }

  void set_state(const ModelState& state) override { sgd_.state = state; }
  [[nodiscard]] ModelState state() const override { return sgd_.state; }

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
      for (const std::size_t i : used) optimizer_->ready(name_of_parameter(program, i));
    } else if (pass.number + 1 <
               pass.epoch.passes(pass.step, arguments_.rank, arguments_.model.accumulation)) {
      optimizer_->end_pass();
    }
  }

  void synchronize() override {
    if (arguments_.program.has(Feature::token)) {
      reduced_.emplace(optimizer_->reduce());
    } else {
      optimizer_->synchronize();
    }
  }

  void clip(double max_norm) override {
    std::vector<std::span<float>> spans;
    for (Buffer& buffer : sgd_.buffers) spans.push_back(buffer.span());
    if (reduced_) {
      const double wanted = norm_of(spans);
      require_norm(optimizer_->clip_grad_norm(*reduced_, 1e30), wanted);
    }
    journeys::clip(spans, max_norm);
  }

  void discard() override {
    if (reduced_) return reduced_.reset();
    optimizer_->skip_step();
  }

  void step(double learning_rate) override {
    sgd_.learning_rate = learning_rate;
    if (!reduced_) return optimizer_->step();
    optimizer_->step(std::move(*reduced_));
    reduced_.reset();
  }

  bool throw_in_hook(const Event& /*event*/) override { return false; }

 private:
  TrainerArguments arguments_;
  Gradients gradients_;
  differential::Random random_;  // of this rank
  Sgd sgd_;
  std::optional<DistributedOptimizer<Sgd>> optimizer_{};
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

std::string name_of_parameter(const Program& program, std::size_t index) {
  const std::string name = "layer." + std::to_string(index);
  return program.has(Feature::long_names) ? name + std::string(10000, 'x') : name;
}

std::unique_ptr<Trainer> make_plain_trainer(const TrainerArguments& arguments) {
  return std::make_unique<PlainTrainer>(arguments);
}

}  // namespace kolo::internal::journeys
