// SPDX-License-Identifier: Apache-2.0
// ShardedOptimizer: clipping and the loss scale. Each rank sees only its part of the gradients.
#include "sharded_network.hpp"

#include <limits>
#include <utility>
#include <vector>

namespace kolo::internal::testing_support {
namespace {

using ShardedNormsTest = TorchTest;

TEST_F(ShardedNormsTest, ClipsByTheJointNorm) {
  for (const double type : {1.0, 2.0, std::numeric_limits<double>::infinity()}) {
    Network whole;
    DistributedOptimizer replicated(optim::SGD(whole.parameters(), 0.1), whole.named_parameters());
    whole.loss(0).backward();
    const double expected = clip_grad_norm(replicated, 0.01, {.norm_type = type});
    replicated.step();
    for (const Sharding sharding : {Sharding::state, Sharding::state_and_gradients}) {
      Network parts;
      ShardedOptimizer sharded(optim::SGD(parts.parameters(), 0.1), parts.named_parameters(), {},
                               sharding);
      parts.loss(0).backward();
      const double norm = clip_grad_norm(sharded, 0.01, {.norm_type = type});
      EXPECT_NEAR(norm, expected, 1e-6 * expected);
      sharded.step();
      expect_close(flat(parts.parameters()), flat(whole.parameters()), 1e-8);
      expect_same_bits_on_all_ranks(parts.parameters());
    }
  }
  ::torch::Tensor w = parameter({1.0});
  ShardedOptimizer optimizer(optim::SGD({w}, 1.0));
  EXPECT_THROW(clip_grad_norm(optimizer, 0.0), InvalidArgument);
  backward(w, std::numeric_limits<double>::infinity());
  EXPECT_THROW(clip_grad_norm(optimizer, 1.0, {.refuse_nonfinite = true}), Error);
  optimizer.skip_step();
}

// Its memory order is not that of the parameter.
TEST_F(ShardedNormsTest, AGradientInAnotherMemoryOrderStaysClippedAndUnscaled) {
  for (const Sharding sharding : {Sharding::state, Sharding::state_and_gradients}) {
    ::torch::Tensor weight = ::torch::zeros({4, 3, 2, 2}, f64)
                                 .contiguous(at::MemoryFormat::ChannelsLast)
                                 .set_requires_grad(true);
    ShardedOptimizer optimizer(optim::SGD({weight}, 1.0), {{"weight", weight}}, {}, sharding);
    GradScaler scaler({.initial = 1024.0});
    const ::torch::Tensor factors = ::torch::arange(48, f64).reshape({4, 3, 2, 2});
    weight.mutable_grad() = ::torch::zeros({4, 3, 2, 2}, f64);
    scaler.scale((weight * factors).sum()).backward();
    scaler.unscale(optimizer);
    EXPECT_NEAR(clip_grad_norm(optimizer, 0.1), factors.norm().item<double>(), 1e-6);
    EXPECT_TRUE(scaler.step(optimizer));
    expect_close(weight, -0.1 * factors / factors.norm(), 1e-6);
  }
}

TEST_F(ShardedNormsTest, AllRanksSkipAStepThatOverflowsInOnePart) {
  const auto train = [](Network& network, auto& optimizer, GradScaler& scaler) {
    std::vector<bool> stepped;
    for (int step = 0; step < 5; ++step) {
      optimizer.zero_grad();
      ::torch::Tensor loss = network.loss(step);
      // Only the first element of one parameter, which is in rank 0's part.
      if (step == 2)
        loss = loss + network.hidden->weight.flatten()[0] * std::numeric_limits<float>::infinity();
      scaler.scale(loss).backward();
      stepped.push_back(scaler.step(optimizer));
      scaler.update();
    }
    return stepped;
  };
  Network whole;
  DistributedOptimizer replicated(optim::Adam(whole.parameters(), 0.01), whole.named_parameters());
  GradScaler scaler;
  EXPECT_THAT(train(whole, replicated, scaler),
              testing::ElementsAre(true, true, false, true, true));
  for (const Sharding sharding : {Sharding::state, Sharding::state_and_gradients}) {
    Network parts;
    ShardedOptimizer sharded(optim::Adam(parts.parameters(), 0.01), parts.named_parameters(), {},
                             sharding);
    GradScaler other;
    EXPECT_THAT(train(parts, sharded, other), testing::ElementsAre(true, true, false, true, true));
    EXPECT_EQ(other.loss_scale(), scaler.loss_scale());
    EXPECT_TRUE(same_bits(flat(parts.parameters()), flat(whole.parameters())));
  }
}

}  // namespace
}  // namespace kolo::internal::testing_support
