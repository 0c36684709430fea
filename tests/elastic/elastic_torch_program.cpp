// SPDX-License-Identifier: Apache-2.0
// Trains a module of LibTorch elastically, and compares the result with a replay in one process.
//
//   elastic_torch_program FOLDER KIND [fault=KIND:PHASE:RANK:STEP]... [grow_to=N]
//
// KIND: adam, sharded, sharded_state, resumed (sharded, loads state from before), or wrapped
// (sharded, its optimizer has state when it is constructed); int8, power_sgd, or sharded_int8
// (shards the state), whose results are only compared between the ranks. After a dot, `scaler`:
// with a scale at which many steps overflow; or `shared`: with SharedGradients. Otherwise as
// elastic_program. clang 14 can read LibTorch 1.13 in C++20 only if this comes first.
#include <ATen/core/ivalue.h>

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>
#include <torch/utils.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <kolo/torch.hpp>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "faults.hpp"
#include "history.hpp"

namespace {

using kolo::internal::Faults;
using kolo::internal::History;

constexpr std::int64_t examples = 60;
constexpr std::int64_t batch = 2;
constexpr std::int64_t inputs = 33;
constexpr std::int64_t epochs = 3;
constexpr double learning_rate = 1e-3;

/// Its buffer counts the steps.
struct NetImpl : torch::nn::Module {
  NetImpl() {
    torch::manual_seed(7);
    first = register_module("first", torch::nn::Linear(inputs, 65));
    second = register_module("second", torch::nn::Linear(65, 1));
    steps = register_buffer("steps", torch::zeros({}, torch::kInt64));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    return second->forward(torch::tanh(first->forward(x)));
  }

  torch::nn::Linear first{nullptr};
  torch::nn::Linear second{nullptr};
  torch::Tensor steps;
};
TORCH_MODULE(Net);

torch::optim::Adam adam_of(Net& net) {
  return torch::optim::Adam(net->parameters(), torch::optim::AdamOptions(learning_rate));
}

kolo::DistributedSampler make_sampler(int rank = -1, int ranks = -1) {
  return kolo::DistributedSampler({.examples = examples,
                                   .rank = rank,
                                   .ranks = ranks,
                                   .seed = 5,
                                   .remainder = kolo::Remainder::uneven});
}

void advance(kolo::DistributedSampler& sampler) {
  sampler.advance(batch);
  if (sampler.steps_left(batch) == 0) sampler.begin_epoch(sampler.epoch() + 1);
}

/// Accumulates the gradients of the first batch of these examples, if there is one.
void backward(Net& net, const std::vector<std::int64_t>& indices,
              const kolo::GradScaler& scaler = kolo::GradScaler({}, false), double factor = 1.0) {
  if (indices.empty()) return;
  std::vector<torch::Tensor> rows;
  for (const std::int64_t example : std::span(indices).first(
           std::min<std::size_t>(indices.size(), static_cast<std::size_t>(batch))))
    rows.push_back(torch::sin(torch::arange(inputs, torch::kFloat32) *
                              (0.1 * static_cast<double>(1 + example))));
  const torch::Tensor x = torch::stack(rows);
  scaler.scale(factor * torch::mse_loss(net->forward(x), x.sum(1, true))).backward();
}

/// As a loader of data that is joined: other ranks learn of an exception before this rank is lost.
struct SlowEnd {
  bool is_slow;
  ~SlowEnd() {
    if (is_slow) std::this_thread::sleep_for(std::chrono::milliseconds(300));
  }
};

/// The scale of a loss at which steps overflow: at first until it is low enough, and then again
/// each time when it has grown.
constexpr kolo::LossScaleOptions overflowing{.initial = 0x1p100, .growth_interval = 3};

/// Gradients above 4 overflow at the scale of 2^100.
constexpr double overflowing_factor = 0x1p26;

struct Setup {
  std::string folder;
  std::vector<std::string> faults;
  int grow_to;
  kolo::LossScaleOptions scale;
  double factor;  // factor of the loss
  bool shares_gradients;
};

/// A hook's errors, which a commit must keep on this rank.
class Errors {
 public:
  explicit Errors(const kolo::CommunicationHook* hook)
      : hook_(hook), none_(hook != nullptr ? hook->per_rank_state() : kolo::StateDict()) {}

  void committed(std::uint64_t commit) {
    commit_ = commit;
    if (hook_ != nullptr) errors_ = hook_->per_rank_state();
  }
  /// Throws unless the errors are those of this commit, or none if another rank has made it.
  void require(std::uint64_t commit) {
    if (hook_ == nullptr) return;
    const bool is_own = commit == commit_;
    if (hook_->per_rank_state() != (is_own ? errors_ : none_))
      throw std::runtime_error("the hook has other errors than at the commit");
    if (is_own && errors_ != none_) ++times_kept_;
  }
  [[nodiscard]] int times_kept() const { return times_kept_; }

 private:
  const kolo::CommunicationHook* hook_;
  kolo::StateDict none_;
  kolo::StateDict errors_{};
  std::uint64_t commit_ = 0;
  int times_kept_ = 0;
};

template <typename Optimizer>
class Training {
 public:
  Training(const Setup& setup, Net net, Optimizer& optimizer,
           const std::shared_ptr<kolo::CommunicationHook>& hook)
      : setup_(setup),
        is_slow_(std::ranges::any_of(
            setup.faults,
            [](const auto& fault) { return fault.find(":backward:") != fault.npos; })),
        faults_(*new Faults(setup.folder, setup.faults)),
        net_(std::move(net)),
        optimizer_(optimizer),
        errors_(hook.get()) {
    state_.add("net", net_)
        .add("optimizer", optimizer_)
        .add("scaler", scaler_)
        .add("sampler", sampler_)
        .add("history", history_)
        .add("skipped", skipped_)
        .add("tensor", tensor_)
        .add_handler("faults", std::make_unique<kolo::internal::FaultyHandler>(
                                   faults_, [this] { return history_.steps(); }));
    if (hook) state_.add("hook", hook);
    // When other gradients are reduced already.
    net_->first->weight.register_hook([this](const torch::Tensor& gradient) {
      fault_at("backward");
      return gradient;
    });
    state_.on_reset([this] { fault_at("reset"); });
  }

  /// `first`: the optimizer's state before the training, or none.
  int run(bool replays, const kolo::StateDict& first = {}) {
    kolo::elastic::run(state_, [this] { train(); });
    faults_.end();
    const bool as_replayed = !replays || compare_with_replay(first);
    const bool alike = compare_with_rank_0();
    if (kolo::rank() == 0 && as_replayed && alike)
      std::cout << fmt::format("as {}: {} steps of {} ranks, {} skipped, errors kept {} times\n",
                               replays ? "replayed" : "rank 0", history_.steps(),
                               fmt::join(history_.numbers_of_ranks(), " "), skipped_,
                               errors_.times_kept());
    return as_replayed && alike ? 0 : 1;
  }

 private:
  void fault_at(const char* phase) { faults_.at(phase, kolo::rank(), history_.steps()); }

  void train() {
    const SlowEnd end{is_slow_};
    std::optional<kolo::SharedGradients> shared;
    if (setup_.shares_gradients) shared.emplace(*net_);
    errors_.require(state_.commits());
    if (kolo::rank() == 0)
      std::cerr << fmt::format("session of {} ranks from step {}\n", kolo::size(),
                               history_.steps());
    bool begins = true;
    while (sampler_.epoch() < epochs ||
           (history_.steps() > 0 && history_.last() < setup_.grow_to)) {
      if (setup_.grow_to > 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
      optimizer_.zero_grad();
      backward(net_, sampler_.indices(), scaler_, setup_.factor);
      fault_at("step");
      if (!scaler_.step(optimizer_)) ++skipped_;
      scaler_.update();
      net_->steps += 1;
      {
        const torch::NoGradGuard no_grad;
        tensor_ = tensor_ + 1;
      }
      history_.add(kolo::size());
      if (std::exchange(begins, false) && kolo::rank() == 0) faults_.end_first_step();
      advance(sampler_);
      if (history_.steps() % 2 != 0) continue;
      fault_at("commit");
      commit();
    }
    if (shared && shared->bytes() == 0) throw std::runtime_error("no gradient was shared");
  }

  void commit() {
    try {
      state_.commit();
    } catch (const kolo::elastic::MembershipChanged&) {
      errors_.committed(state_.commits());
      throw;
    }
    errors_.committed(state_.commits());
  }

  [[nodiscard]] bool compare_with_replay(const kolo::StateDict& first) const {
    Net net;
    torch::optim::Adam optimizer = adam_of(net);
    if (!first.empty()) kolo::load_state(optimizer, first);
    kolo::DistributedSampler position = make_sampler(0, 1);
    kolo::GradScaler scaler(setup_.scale);
    std::int32_t skipped = 0;
    history_.for_each_step([&](int ranks) {
      std::vector<torch::Tensor> sums;
      for (int rank = 0; rank < ranks; ++rank) {
        kolo::DistributedSampler sampler = make_sampler(rank, ranks);
        sampler.load_state(position.state());
        optimizer.zero_grad();
        backward(net, sampler.indices(), scaler, setup_.factor);
        const std::vector<torch::Tensor> parameters = net->parameters();
        for (std::size_t i = 0; i < parameters.size(); ++i) {
          const torch::Tensor& gradient = parameters[i].grad();
          const torch::Tensor own =
              gradient.defined() ? gradient.clone() : torch::zeros_like(parameters[i]);
          if (rank == 0) {
            sums.push_back(own);
          } else {
            sums[i] += own;
          }
        }
      }
      for (std::size_t i = 0; i < sums.size(); ++i) net->parameters()[i].mutable_grad() = sums[i];
      if (!scaler.step(optimizer)) ++skipped;
      scaler.update();
      kolo::DistributedSampler next = make_sampler(0, ranks);
      next.load_state(position.state());
      advance(next);
      position.load_state(next.state());
    });
    bool same =
        net_->steps.template item<std::int64_t>() == static_cast<std::int64_t>(history_.steps()) &&
        tensor_.template item<float>() == static_cast<float>(history_.steps()) &&
        skipped_ == skipped && scaler_.loss_scale() == scaler.loss_scale();
    for (std::size_t i = 0; i < net->parameters().size(); ++i)
      same = same && torch::equal(net->parameters()[i], net_->parameters()[i]);
    if (!same) std::cerr << fmt::format("rank {}: other parameters than replayed\n", kolo::rank());
    return same;
  }

  [[nodiscard]] bool compare_with_rank_0() const {
    std::string own = kolo::to_safetensors(kolo::state(*net_));
    std::string first = own;
    kolo::broadcast(first, 0);
    if (own != first) std::cerr << fmt::format("rank {}: not as rank 0\n", kolo::rank());
    return own == first;
  }

  const Setup& setup_;
  bool is_slow_;
  Faults& faults_;
  Net net_;
  Optimizer& optimizer_;
  Errors errors_;
  kolo::GradScaler scaler_{setup_.scale};
  kolo::DistributedSampler sampler_ = make_sampler();
  History history_{};
  std::int32_t skipped_ = 0;  // steps that overflowed
  torch::Tensor tensor_ = torch::zeros({1});
  kolo::elastic::State state_{};
};

/// The state of an optimizer that has made one step. The parameters are those of a fresh net.
kolo::StateDict stepped_state() {
  Net net;
  torch::optim::Adam optimizer = adam_of(net);
  backward(net, {3, 4});
  optimizer.step();
  return kolo::state(optimizer);
}

std::shared_ptr<kolo::CommunicationHook> hook_of(const std::string& kind) {
  if (kind == "power_sgd") return kolo::power_sgd({.rank = 1, .min_compression = 1.1});
  const bool is_int8 = kind == "int8" || kind == "sharded_int8";
  return is_int8 ? kolo::int8({.min_elements = 16}) : nullptr;
}

int train(const std::string& kind, const Setup& setup) {
  Net net;
  const kolo::NamedParameters names = net->named_parameters().pairs();
  const kolo::DistributedOptimizerOptions options{.op = kolo::ReduceOp::sum, .hook = hook_of(kind)};
  const bool replays = options.hook == nullptr;
  if (kind == "adam" || kind == "int8" || kind == "power_sgd") {
    kolo::DistributedOptimizer optimizer(adam_of(net), names, options);
    return Training(setup, net, optimizer, options.hook).run(replays);
  }
  const bool shards_gradients = kind == "sharded" || kind == "resumed";
  kolo::StateDict first;
  if (kind == "resumed" || kind == "wrapped") first = stepped_state();
  torch::optim::Adam adam = adam_of(net);
  if (kind == "wrapped") kolo::load_state(adam, first);
  kolo::ShardedOptimizer optimizer(
      std::move(adam), names, options,
      shards_gradients ? kolo::Sharding::state_and_gradients : kolo::Sharding::state);
  if (kind == "resumed") optimizer.load_full_state(first);
  return Training(setup, net, optimizer, options.hook).run(replays, first);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    at::set_num_threads(1);
    std::vector<std::string> faults;
    std::vector<std::string> grown;
    for (const std::string text : std::span(argv + 3, static_cast<std::size_t>(argc - 3)))
      (text.starts_with("grow_to=") ? grown : faults).push_back(text.substr(text.find('=') + 1));
    const std::string kind = argv[2];
    const std::size_t dot = kind.find('.');
    const std::string variant = dot == std::string::npos ? "" : kind.substr(dot + 1);
    const bool overflows = variant == "scaler";
    const Setup setup{.folder = argv[1],
                      .faults = faults,
                      .grow_to = grown.empty() ? 0 : std::stoi(grown.front()),
                      .scale = overflows ? overflowing : kolo::LossScaleOptions{},
                      .factor = overflows ? overflowing_factor : 1.0,
                      .shares_gradients = variant == "shared"};
    const kolo::Session session;
    return train(kind.substr(0, dot), setup);
  } catch (const std::exception& error) {
    std::cerr << "elastic_torch_program: " << error.what() << '\n';
    return 1;
  }
}
