// SPDX-License-Identifier: Apache-2.0
// A small network for the tests of sharded optimizers.
#pragma once

#include "support.hpp"

namespace kolo::internal::testing_support {

namespace nn = ::torch::nn;
namespace optim = ::torch::optim;
using testing::HasSubstr;
using Tensors = std::vector<::torch::Tensor>;

// Parameters of odd sizes, one smaller than the number of ranks, and one in another memory order.
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

  // Of this rank's data for a step.
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

// Each `stride`th rank, below `end`.
inline std::vector<int> ranks_by(int stride, int end) {
  std::vector<int> ranks;
  for (int rank = 0; rank < end; rank += stride) ranks.push_back(rank);
  return ranks;
}

}  // namespace kolo::internal::testing_support
