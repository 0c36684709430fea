// SPDX-License-Identifier: Apache-2.0
// A small network for the tests of sharded optimizers.
#pragma once

#include "support.hpp"

#include <functional>
#include <string>
#include <utility>

namespace kolo::internal::testing_support {

namespace nn = ::torch::nn;
namespace optim = ::torch::optim;
using testing::HasSubstr;
using Tensors = std::vector<::torch::Tensor>;

// Parameters of odd sizes, one of them smaller than the number of ranks, and one in another memory
// order.
struct Network : nn::Module {
  explicit Network(std::uint64_t seed = 1) {
    ::torch::manual_seed(seed);
    convolution = register_module("convolution", nn::Conv2d(3, 5, 3));
    hidden = register_module("hidden", nn::Linear(5, 7));
    output = register_module("output", nn::Linear(7, 1));
    convolution->weight.set_data(convolution->weight.contiguous(at::MemoryFormat::ChannelsLast));
  }

  ::torch::Tensor forward(const ::torch::Tensor& images) {
    const ::torch::Tensor features = convolution->forward(images).relu().mean({2, 3});
    return output->forward(hidden->forward(features).tanh());
  }

  // The loss of this rank's data in a step.
  ::torch::Tensor loss(int step) {
    ::torch::manual_seed(static_cast<std::uint64_t>(1000 * step + rank()));
    const ::torch::Tensor images = ::torch::randn({4, 3, 6, 6});
    return (forward(images) - ::torch::randn({4, 1})).pow(2).mean();
  }

  nn::Conv2d convolution{nullptr};
  nn::Linear hidden{nullptr};
  nn::Linear output{nullptr};
};

template <typename Optimizer>
void usual_step(Network& network, Optimizer& optimizer, int step) {
  optimizer.zero_grad();
  network.loss(step).backward();
  optimizer.step();
}

// Runs the same training with each kind of optimizer; all must give the same bits after each step.
// `run(network, optimizer, step)` runs one step.
template <typename Base, typename Options, typename Run>
void expect_same_training(const Options& base, const Run& run,
                          const DistributedOptimizerOptions& options = {}, int steps = 6) {
  Network network;
  DistributedOptimizer replicated(Base(network.parameters(), base), network.named_parameters(),
                                  options);
  std::vector<Tensors> expected;
  for (int step = 0; step < steps; ++step) {
    run(network, replicated, step);
    expected.emplace_back();
    for (const auto& parameter : network.parameters())
      expected.back().push_back(parameter.detach().clone());
  }
  for (const Sharding sharding : {Sharding::state, Sharding::state_and_gradients}) {
    SCOPED_TRACE(sharding == Sharding::state ? "state" : "state and gradients");
    Network other;
    ShardedOptimizer sharded(Base(other.parameters(), base), other.named_parameters(), options,
                             sharding);
    for (int step = 0; step < steps; ++step) {
      run(other, sharded, step);
      const Tensors now = other.parameters();
      ASSERT_TRUE(same_bits(flat(now), flat(expected[static_cast<std::size_t>(step)])))
          << "after step " << step;
    }
    expect_same_bits_on_all_ranks(other.parameters());
  }
}

// The same, for programs of several modules or optimizers: `train(wrap)` returns tensors, and
// `wrap(base, names)` makes an optimizer.
template <typename Train>
void expect_same_results(const Train& train, const DistributedOptimizerOptions& options = {}) {
  const Tensors expected = train([&](auto base, const auto& names) {
    return DistributedOptimizer(std::move(base), names, options);
  });
  for (const Sharding sharding : {Sharding::state, Sharding::state_and_gradients}) {
    SCOPED_TRACE(sharding == Sharding::state ? "state" : "state and gradients");
    const Tensors found = train([&](auto base, const auto& names) {
      return ShardedOptimizer(std::move(base), names, options, sharding);
    });
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t i = 0; i < found.size(); ++i)
      ASSERT_TRUE(same_bits(found[i], expected[i])) << "of result " << i;
  }
}

// The message of a refused call.
inline std::string refusal_of(const std::function<void()>& call) {
  return error_of<InvalidArgument>(call).what();
}

// Every `stride`th rank below `end`.
inline std::vector<int> ranks_by(int stride, int end) {
  std::vector<int> ranks;
  for (int rank = 0; rank < end; rank += stride) ranks.push_back(rank);
  return ranks;
}

}  // namespace kolo::internal::testing_support
