// SPDX-License-Identifier: Apache-2.0
// FullySharded: the same training as with DistributedOptimizer, with 1/n of the parameters.
#include "fully_sharded_network.hpp"

namespace kolo::internal::testing_support {
namespace {

using FullyShardedTest = TorchTest;

TEST_F(FullyShardedTest, TrainsAsTheReplicatedModel) {
  const auto check = [](auto kind, const auto& options) {
    using Base = typename decltype(kind)::type;
    expect_same_state(train_sharded<Base>(options, usual, 20),
                      train_replicated<Base>(options, usual, 20));
  };
  check(std::type_identity<optim::SGD>(), optim::SGDOptions(0.1).momentum(0.9));
  check(std::type_identity<optim::AdamW>(), optim::AdamWOptions(0.01));
  check(std::type_identity<optim::Adagrad>(), optim::AdagradOptions(0.1));
}

TEST_F(FullyShardedTest, OptionsChangeNoBits) {
  const auto options = optim::AdamWOptions(0.01);
  const StateDict expected = train_replicated<optim::AdamW>(options, usual, 5);
  for (const bool reshard : {true, false})
    for (const int ahead : {0, 1, 3, 100})
      expect_same_state(
          train_sharded<optim::AdamW>(options, usual, 5,
                                      {.reshard_after_forward = reshard, .units_ahead = ahead}),
          expected);
}

TEST_F(FullyShardedTest, AccumulatesPassesAndForwards) {
  const auto options = optim::AdamWOptions(0.01);
  const auto check = [&](const auto& step) {
    expect_same_state(train_sharded<optim::AdamW>(options, step, 4),
                      train_replicated<optim::AdamW>(options, step, 4));
  };
  check([](auto& model, auto& gradients, auto& optimizer, int step) {
    optimizer.zero_grad();
    {
      const auto local = gradients.no_sync();
      loss_of(model, 3 * step).backward();
      loss_of(model, 3 * step + 1).backward();
    }
    loss_of(model, 3 * step + 2).backward();
    optimizer.step();
  });
  check([](auto& model, auto& /*gradients*/, auto& optimizer, int step) {
    optimizer.zero_grad();
    const Tensor first = loss_of(model, 2 * step);
    (first + loss_of(model, 2 * step + 1)).backward();
    optimizer.step();
  });
  check([](auto& model, auto& /*gradients*/, auto& optimizer, int step) {
    optimizer.zero_grad();
    const Tensor loss = loss_of(model, step);
    loss.backward({}, /*retain_graph=*/true);
    loss.backward();
    optimizer.step();
  });
  check([](auto& model, auto& /*gradients*/, auto& optimizer, int step) {
    optimizer.zero_grad();
    const Tensor loss = loss_of(model, step);
    {
      const ::torch::NoGradGuard no_grad;
      (void)loss_of(model, 100 + step);  // an evaluation in between
    }
    (void)loss_of(model, 200 + step);  // a forward without a backward
    loss.backward();
    optimizer.step();
  });
}

}  // namespace
}  // namespace kolo::internal::testing_support
