// SPDX-License-Identifier: Apache-2.0
// Trains elastically with an outer optimizer, as the example of local SGD and DiLoCo does, and
// compares the result with a replay in one process.
//
//   elastic_outer_program FOLDER [fault=KIND:PHASE:RANK:STEP]... [grow_to=N]
//
// A step is a round: each rank trains alone, and the outer optimizer steps.
// clang 14 can read LibTorch 1.13 in C++20 only if this comes first.
#include <ATen/core/ivalue.h>

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/linear.h>
#include <torch/utils.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <iostream>
#include <kolo/torch.hpp>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "faults.hpp"
#include "outer.hpp"

namespace {

using kolo::internal::Faults;
using local_sgd::OuterOptimizer;

constexpr std::int64_t inputs = 17;
constexpr std::size_t rounds = 24;
constexpr int steps_of_a_round = 3;
constexpr double inner_rate = 0.01;
constexpr double outer_rate = 0.7;
constexpr double outer_momentum = 0.9;

torch::nn::Linear make_net() {
  torch::manual_seed(7);
  return torch::nn::Linear(inputs, 2);
}

/// The steps of one rank in a round, by plain gradient descent.
void train_alone(torch::nn::Linear& net, std::size_t round, int rank) {
  for (int step = 0; step < steps_of_a_round; ++step) {
    const double phase = 1.0 + static_cast<double>(round) + 0.1 * step + 0.01 * rank;
    const torch::Tensor x = torch::sin(torch::arange(inputs, torch::kFloat32) * phase);
    net->zero_grad();
    torch::mse_loss(net->forward(x), torch::stack({x.sum(), x.max()})).backward();
    const torch::NoGradGuard no_grad;
    for (torch::Tensor& parameter : net->parameters()) parameter.sub_(parameter.grad(), inner_rate);
  }
}

class Training {
 public:
  Training(const std::string& folder, const std::vector<std::string>& faults, int grow_to)
      : grow_to_(grow_to), faults_(*new Faults(folder, faults)) {
    state_.add("net", net_)
        .add("outer", outer_)
        .add("ranks", ranks_)
        .add_handler("faults", std::make_unique<kolo::internal::FaultyHandler>(
                                   faults_, [this] { return ranks_.size(); }));
  }

  int run() {
    kolo::elastic::run(state_, [this] { train(); });
    if (!as_replayed()) {
      std::cerr << fmt::format("rank {}: other parameters than replayed\n", kolo::rank());
      return 1;
    }
    std::vector<std::int32_t> numbers = ranks_;
    numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
    if (kolo::rank() == 0)
      std::cout << fmt::format("as replayed: {} rounds of {} ranks\n", ranks_.size(),
                               fmt::join(numbers, " "));
    return 0;
  }

 private:
  void train() {
    while (ranks_.size() < rounds || ranks_.back() < grow_to_) {
      if (grow_to_ > 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
      train_alone(net_, ranks_.size(), kolo::rank());
      faults_.at("step", kolo::rank(), ranks_.size());
      outer_.step();
      ranks_.push_back(kolo::size());
      if (ranks_.size() % 2 == 0) state_.commit();
    }
  }

  [[nodiscard]] bool as_replayed() const {
    torch::nn::Linear net = make_net();
    std::vector<torch::Tensor> common;
    std::vector<torch::Tensor> velocity;
    for (const torch::Tensor& parameter : net->parameters()) {
      common.push_back(parameter.detach().clone());
      velocity.push_back(torch::zeros_like(common.back()));
    }
    for (std::size_t round = 0; round < ranks_.size(); ++round) {
      std::vector<torch::Tensor> distances;
      for (int rank = 0; rank < ranks_[round]; ++rank) {
        put(common, net);
        train_alone(net, round, rank);
        const torch::NoGradGuard no_grad;
        for (std::size_t i = 0; i < common.size(); ++i) {
          const torch::Tensor distance = common[i] - net->parameters()[i];
          if (rank == 0) {
            distances.push_back(distance);
          } else {
            distances[i].add_(distance);
          }
        }
      }
      for (std::size_t i = 0; i < common.size(); ++i) {
        distances[i].div_(ranks_[round]);
        velocity[i].mul_(outer_momentum).add_(distances[i]);
        common[i].sub_(distances[i].add(velocity[i], outer_momentum), outer_rate);
      }
    }
    put(common, net);
    return kolo::state(*net) == kolo::state(*net_);
  }

  static void put(const std::vector<torch::Tensor>& from, torch::nn::Linear& net) {
    const torch::NoGradGuard no_grad;
    for (std::size_t i = 0; i < from.size(); ++i) net->parameters()[i].copy_(from[i]);
  }

  int grow_to_;
  Faults& faults_;
  torch::nn::Linear net_ = make_net();
  OuterOptimizer outer_{net_->parameters(), outer_rate, outer_momentum};
  std::vector<std::int32_t> ranks_{};  // number of ranks in each round
  kolo::elastic::State state_{};
};

}  // namespace

int main(int argc, char** argv) {
  try {
    at::set_num_threads(1);
    std::vector<std::string> faults;
    int grow_to = 0;
    for (const std::string text : std::span(argv + 2, static_cast<std::size_t>(argc - 2))) {
      const std::string value = text.substr(text.find('=') + 1);
      if (text.starts_with("grow_to=")) {
        grow_to = std::stoi(value);
      } else {
        faults.push_back(value);
      }
    }
    const kolo::Session session;
    return Training(argv[1], faults, grow_to).run();
  } catch (const std::exception& error) {
    std::cerr << "elastic_outer_program: " << error.what() << '\n';
    return 1;
  }
}
