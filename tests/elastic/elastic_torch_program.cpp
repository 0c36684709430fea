// SPDX-License-Identifier: Apache-2.0
// Trains a module of LibTorch elastically, and compares the result with a replay in one process.
//
//   elastic_torch_program FOLDER KIND [fault=KIND:PHASE:RANK:STEP]... [grow_to=N]
//
// KIND: adam, sharded, sharded_state, resumed (sharded, with state from before), or int8, whose
// result is only compared between the ranks. Otherwise as elastic_program.
// clang 14 can read LibTorch 1.13 in C++20 only if this comes first.
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
#include <span>
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
              const kolo::GradScaler& scaler = kolo::GradScaler({}, false)) {
  if (indices.empty()) return;
  std::vector<torch::Tensor> rows;
  for (const std::int64_t example : std::span(indices).first(
           std::min<std::size_t>(indices.size(), static_cast<std::size_t>(batch))))
    rows.push_back(torch::sin(torch::arange(inputs, torch::kFloat32) *
                              (0.1 * static_cast<double>(1 + example))));
  const torch::Tensor x = torch::stack(rows);
  scaler.scale(torch::mse_loss(net->forward(x), x.sum(1, true))).backward();
}

/// As a loader of data that is joined: other ranks learn of an exception before this rank is lost.
struct SlowEnd {
  bool is_slow;
  ~SlowEnd() {
    if (is_slow) std::this_thread::sleep_for(std::chrono::milliseconds(300));
  }
};

template <typename Optimizer>
class Training {
 public:
  Training(const std::string& folder, const std::vector<std::string>& faults, Net net,
           Optimizer& optimizer, const std::shared_ptr<kolo::CommunicationHook>& hook, int grow_to)
      : grow_to_(grow_to),
        is_slow_(std::ranges::any_of(
            faults, [](const auto& fault) { return fault.find(":backward:") != fault.npos; })),
        faults_(*new Faults(folder, faults)),
        net_(std::move(net)),
        optimizer_(optimizer) {
    state_.add("net", net_)
        .add("optimizer", optimizer_)
        .add("scaler", scaler_)
        .add("sampler", sampler_)
        .add("history", history_)
        .add("tensor", tensor_)
        .add_part("faults", std::make_unique<kolo::internal::FaultyPart>(
                                faults_, [this] { return history_.steps(); }));
    if (hook) state_.add("hook", hook);
    // When other gradients are reduced already.
    net_->first->weight.register_hook([this](const torch::Tensor& gradient) {
      fault_at("backward");
      return gradient;
    });
    state_.on_reset([this] { fault_at("reset"); });
  }

  /// `first`: the optimizer's state before the training, or "".
  int run(bool replays, const std::string& first = "") {
    kolo::elastic::run(state_, [this] { train(); });
    faults_.end();
    const bool as_replayed = !replays || compare_with_replay(first);
    const bool alike = compare_with_rank_0();
    if (kolo::rank() == 0 && as_replayed && alike)
      std::cout << fmt::format("as {}: {} steps of {} ranks\n", replays ? "replayed" : "rank 0",
                               history_.steps(), fmt::join(history_.numbers_of_ranks(), " "));
    return as_replayed && alike ? 0 : 1;
  }

 private:
  void fault_at(const char* phase) { faults_.at(phase, kolo::rank(), history_.steps()); }

  void train() {
    const SlowEnd end{is_slow_};
    if (kolo::rank() == 0)
      std::cerr << fmt::format("session of {} ranks from step {}\n", kolo::size(),
                               history_.steps());
    bool begins = true;
    while (sampler_.epoch() < epochs || (history_.steps() > 0 && history_.last() < grow_to_)) {
      if (grow_to_ > 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
      optimizer_.zero_grad();
      backward(net_, sampler_.indices(), scaler_);
      fault_at("step");
      // The scale is a power of two, so it changes no bit of the result.
      scaler_.step(optimizer_);
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
      state_.commit();
    }
  }

  [[nodiscard]] bool compare_with_replay(const std::string& first) const {
    Net net;
    torch::optim::Adam optimizer = adam_of(net);
    if (!first.empty()) kolo::from_bytes(first, optimizer);
    kolo::DistributedSampler position = make_sampler(0, 1);
    history_.for_each_step([&](int ranks) {
      std::vector<torch::Tensor> sums;
      for (int rank = 0; rank < ranks; ++rank) {
        kolo::DistributedSampler sampler = make_sampler(rank, ranks);
        sampler.load(position.state());
        optimizer.zero_grad();
        backward(net, sampler.indices());
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
      optimizer.step();
      kolo::DistributedSampler next = make_sampler(0, ranks);
      next.load(position.state());
      advance(next);
      position.load(next.state());
    });
    bool same =
        net_->steps.template item<std::int64_t>() == static_cast<std::int64_t>(history_.steps()) &&
        tensor_.template item<float>() == static_cast<float>(history_.steps());
    for (std::size_t i = 0; i < net->parameters().size(); ++i)
      same = same && torch::equal(net->parameters()[i], net_->parameters()[i]);
    if (!same) std::cerr << fmt::format("rank {}: other parameters than replayed\n", kolo::rank());
    return same;
  }

  [[nodiscard]] bool compare_with_rank_0() const {
    std::string own = kolo::to_bytes(*net_);
    std::string first = own;
    kolo::broadcast(first, 0);
    if (own != first) std::cerr << fmt::format("rank {}: not as rank 0\n", kolo::rank());
    return own == first;
  }

  int grow_to_;
  bool is_slow_;
  Faults& faults_;
  Net net_;
  Optimizer& optimizer_;
  kolo::GradScaler scaler_{};
  kolo::DistributedSampler sampler_ = make_sampler();
  History history_{};
  torch::Tensor tensor_ = torch::zeros({1});
  kolo::elastic::State state_{};
};

/// The state of an optimizer that has made one step. The parameters are those of a fresh net.
std::string stepped_state() {
  Net net;
  torch::optim::Adam optimizer = adam_of(net);
  backward(net, {3, 4});
  optimizer.step();
  return kolo::to_bytes(optimizer);
}

int train(const std::string& kind, const std::string& folder,
          const std::vector<std::string>& faults, int grow_to) {
  Net net;
  const kolo::NamedParameters names = net->named_parameters().pairs();
  kolo::DistributedOptimizerOptions options{.op = kolo::ReduceOp::sum};
  if (kind == "adam" || kind == "int8") {
    if (kind == "int8") options.hook = kolo::int8({.min_elements = 16});
    kolo::DistributedOptimizer optimizer(adam_of(net), names, options);
    return Training(folder, faults, net, optimizer, options.hook, grow_to).run(kind == "adam");
  }
  const auto sharding =
      kind != "sharded_state" ? kolo::Sharding::state_and_gradients : kolo::Sharding::state;
  kolo::ShardedOptimizer optimizer(adam_of(net), names, options, sharding);
  if (kind == "resumed") {
    optimizer.load_whole_state(stepped_state());
    return Training(folder, faults, net, optimizer, nullptr, grow_to).run(true, stepped_state());
  }
  return Training(folder, faults, net, optimizer, nullptr, grow_to).run(true);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    at::set_num_threads(1);
    std::vector<std::string> faults;
    std::vector<std::string> grown;
    for (const std::string text : std::span(argv + 3, static_cast<std::size_t>(argc - 3)))
      (text.starts_with("grow_to=") ? grown : faults).push_back(text.substr(text.find('=') + 1));
    const kolo::Session session;
    return train(argv[2], argv[1], faults, grown.empty() ? 0 : std::stoi(grown.front()));
  } catch (const std::exception& error) {
    std::cerr << "elastic_torch_program: " << error.what() << '\n';
    return 1;
  }
}
