// SPDX-License-Identifier: Apache-2.0
// LibTorch's training with unequal shares equals that of one process.
#include "support.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace kolo::internal::testing_support {
namespace {

using Indices = std::vector<std::int64_t>;

/// Data, a model with the same parameters on all ranks, and its mean loss.
struct Regression {
  Regression() {
    ::torch::manual_seed(7);
    data = ::torch::randn({1000, 3}, f64);
    model = ::torch::nn::Sequential(::torch::nn::Linear(3, 4), ::torch::nn::Tanh(),
                                    ::torch::nn::Linear(4, 1));
    model->to(f64);
  }

  ::torch::Tensor loss(const Indices& examples) {
    const ::torch::Tensor x = data.index_select(0, ::torch::tensor(examples));
    return ::torch::mse_loss(model->forward(x), x.prod(1, /*keepdim=*/true));
  }

  ::torch::Tensor data{};
  ::torch::nn::Sequential model{};
};

/// The first `count` examples of the rest of an epoch.
Indices first_of(const Indices& rest, std::int64_t count) {
  return {rest.begin(), rest.begin() + count};
}

/// Trains for an epoch of shares of 3 for rank 0 and of 2 for all others. In the last step one
/// example is left, for rank 0: the others step without a backward pass. With `apart`, no backward
/// pass waits for other ranks.
void train(Regression& regression, bool apart) {
  DistributedOptimizer optimizer(::torch::optim::SGD(regression.model->parameters(), 0.1),
                                 regression.model->named_parameters());
  Indices shares(static_cast<std::size_t>(size()), 2);
  shares[0] = 3;
  BatchShares speeds({.global_batch = std::int64_t{2} * size() + 1});
  DistributedSampler sampler({.examples = 5 * (std::int64_t{2} * size() + 1) + 1, .seed = 9});
  for (; sampler.steps_left(shares) > 0; sampler.advance(shares)) {
    const std::int64_t own = sampler.next_sizes(shares)[static_cast<std::size_t>(rank())];
    const Indices batch = first_of(sampler.indices(shares), own);
    optimizer.zero_grad();
    if (!batch.empty() && apart) {
      speeds.time(own, [&] {
        const auto alone = optimizer.no_sync();
        (regression.loss(batch) * sampler.weight(shares)).backward();
      });
    } else if (!batch.empty()) {
      (regression.loss(batch) * sampler.weight(shares)).backward();
    }
    optimizer.step();
  }
  speeds.agree();
}

class BatchSharesTorch : public TorchTest {};

TEST_F(BatchSharesTorch, GradientsEqualThoseOfOneProcess) {
  for (const bool apart : {false, true}) {
    Regression alone, shared;
    train(shared, apart);
    ::torch::optim::SGD optimizer(alone.model->parameters(), 0.1);
    const std::int64_t batch = std::int64_t{2} * size() + 1;
    DistributedSampler sampler({.examples = 5 * batch + 1, .rank = 0, .ranks = 1, .seed = 9});
    for (int step = 0; step < 6; ++step) {
      optimizer.zero_grad();
      alone.loss(first_of(sampler.indices(), step < 5 ? batch : 1)).backward();
      optimizer.step();
      sampler.advance(batch);
    }
    for (std::size_t i = 0; i < alone.model->parameters().size(); ++i)
      EXPECT_TRUE(::torch::allclose(shared.model->parameters()[i], alone.model->parameters()[i],
                                    /*rtol=*/0.0, /*atol=*/1e-12))
          << "parameter " << i << ", apart " << apart;
  }
}

}  // namespace
}  // namespace kolo::internal::testing_support
