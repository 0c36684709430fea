// SPDX-License-Identifier: Apache-2.0
// FullySharded where ranks differ, and where programs do more than usual.
#include "fully_sharded_network.hpp"

#include <limits>

namespace kolo::internal::testing_support {
namespace {

using FullyShardedObstacles = TorchTest;

const auto adam_options = optim::AdamWOptions(0.01);

template <typename Step>
void expect_same_training(const Step& step, int steps = 4, const FullyShardedOptions& how = {}) {
  expect_same_state(train_sharded<optim::AdamW>(adam_options, step, steps, how),
                    train_replicated<optim::AdamW>(adam_options, step, steps));
}

TEST_F(FullyShardedObstacles, RanksMaySkipUnits) {
  for (const int ahead : {0, 1, 2})
    expect_same_training(
        [](auto& model, auto& gradients, auto& optimizer, int step) {
          model->skipped.clear();
          // The first step agrees on the order. Then: one rank skips one, several skip several,
          // all skip the last, and one skips all.
          if (step == 1 && rank() == 0) model->skipped = {1};
          if (step == 2) model->skipped = {static_cast<std::size_t>(rank()) % 4, 2};
          if (step == 3) model->skipped = {3};
          if (step == 4 && rank() == size() - 1) model->skipped = {0, 1, 2, 3};
          if (step == 5) model->skipped = {};
          usual(model, gradients, optimizer, step);
        },
        6, {.units_ahead = ahead});
}

// A parameter that no rank uses has no gradient, so that AdamW does not decay it.
TEST_F(FullyShardedObstacles, WhatNobodyUsesHasNoGradient) {
  auto model = make_net<ShardedNet>();
  FullySharded sharded(model);
  model->skipped = {2};
  loss_of(model, 0).backward();
  for (const auto& [name, shard] : sharded.named_parameters())
    EXPECT_EQ(shard.grad().defined(), !name.starts_with("block2.")) << name;
}

TEST_F(FullyShardedObstacles, ARankWithoutDataTakesPart) {
  auto model = make_net<ShardedNet>();
  FullySharded sharded(model);
  optim::SGD optimizer(sharded.parameters(), 0.1);
  for (int step = 0; step < 3; ++step) {
    optimizer.zero_grad();
    if (rank() == size() - 1 && size() > 1) {
      sharded.take_part();
    } else {
      loss_of(model, step).backward();
    }
    optimizer.step();
  }
  auto expected = make_net<Net>();
  optim::SGD plain(expected->parameters(), 0.1);
  const int with_data = std::max(size() - 1, 1);
  for (int step = 0; step < 3; ++step) {
    plain.zero_grad();
    for (int rank = 0; rank < with_data; ++rank)
      (expected->forward(data_of(step, rank)).square().mean() / size()).backward();
    plain.step();
  }
  const StateDict whole = sharded.full_state();
  for (const auto& item : expected->named_parameters())
    expect_close(to_tensor(whole.tensors.at(item.key())), item.value().detach(), 1e-5);
}

// One rank's forward throws in different steps, the first included. Its next forward makes the
// others' backward fail; then training goes on.
TEST_F(FullyShardedObstacles, AForwardThatThrowsFailsThePassEverywhere) {
  for (const int failing_step : {0, 2}) {
    auto model = make_net<ShardedNet>();
    FullySharded sharded(model);
    optim::AdamW optimizer(sharded.parameters(), adam_options);
    auto expected = make_net<Net>();
    DistributedOptimizer plain(optim::AdamW(expected->parameters(), adam_options),
                               expected->named_parameters());
    for (int step = 0; step < 4; ++step) {
      if (step == failing_step && size() > 1) {
        if (rank() == 1) {
          model->blocks[1]->fails = true;
          EXPECT_THROW(loss_of(model, step), std::runtime_error);
          model->blocks[1]->fails = false;
        } else {
          const auto error = error_of<BackwardFailed>([&] { loss_of(model, step).backward(); });
          EXPECT_EQ(error.ranks(), std::vector<int>{1});
        }
      }
      usual(model, sharded, optimizer, step);
      usual(expected, plain, plain, step);
    }
    expect_same_state(sharded.full_state(), state(*expected));
  }
}

// Backward throws before it comes to a unit, between units, and after the last.
TEST_F(FullyShardedObstacles, ABackwardThatThrowsFailsThePassEverywhere) {
  auto model = make_net<ShardedNet>();
  FullySharded sharded(model);
  optim::AdamW optimizer(sharded.parameters(), adam_options);
  auto expected = make_net<Net>();
  DistributedOptimizer plain(optim::AdamW(expected->parameters(), adam_options),
                             expected->named_parameters());
  for (int place = 0; place < 3; ++place) {
    if (size() > 1) {
      const bool throws = rank() == size() - 1;
      optimizer.zero_grad();
      int call = 0;
      model->wrap = [&](const auto& block, const Tensor& hidden) {
        return throws && place == 1 && call++ == 1 ? Throw::apply(block(hidden)) : block(hidden);
      };
      Tensor data = data_of(place);
      if (throws && place == 2) data = Throw::apply(data.set_requires_grad(true));
      Tensor loss = model->forward(data).square().mean();
      if (throws && place == 0) loss = Throw::apply(loss);
      if (throws) {
        EXPECT_THROW(loss.backward(), std::runtime_error);
      } else {
        const auto error = error_of<BackwardFailed>([&] { loss.backward(); });
        EXPECT_EQ(error.ranks(), std::vector<int>{size() - 1}) << place;
      }
      model->wrap = nullptr;
    }
    usual(model, sharded, optimizer, place);
    usual(expected, plain, plain, place);
  }
  expect_same_state(sharded.full_state(), state(*expected));
}

TEST_F(FullyShardedObstacles, ActivationsMayBeComputedAgain) {
  const auto alone = [](const auto& block, const Tensor& hidden) {
    return checkpointed([block](const Tensor& x) { return block(x); }, hidden);
  };
  expect_same_training([&](auto& model, auto& gradients, auto& optimizer, int step) {
    model->wrap = alone;
    if (step == 2 && rank() == 0) model->skipped = {2};
    usual(model, gradients, optimizer, step);
    model->skipped.clear();
    model->wrap = nullptr;
  });
  // Two units in one call, and the whole model.
  expect_same_training([](auto& model, auto& /*gradients*/, auto& optimizer, int step) {
    optimizer.zero_grad();
    const Tensor out =
        checkpointed([&](const Tensor& data) { return model->forward(data); }, data_of(step));
    out.square().mean().backward();
    optimizer.step();
  });
}

TEST_F(FullyShardedObstacles, AStepBetweenForwardAndBackwardIsRefused) {
  auto model = make_net<ShardedNet>();
  FullySharded sharded(model);
  optim::SGD optimizer(sharded.parameters(), 0.1);
  loss_of(model, 0).backward();
  const Tensor loss = loss_of(model, 1);
  optimizer.step();
  const auto error = error_of<Error>([&] { loss.backward(); });
  EXPECT_THAT(error.what(), testing::HasSubstr("changed between forward and backward"));
}

TEST_F(FullyShardedObstacles, ClipsByTheNormOfAllShards) {
  expect_same_training([](auto& model, auto& gradients, auto& optimizer, int step) {
    optimizer.zero_grad();
    loss_of(model, step).backward();
    const double norm = clip_grad_norm(optimizer, 1e9);
    double expected = norm;
    broadcast(TensorView(expected), 0);
    EXPECT_EQ(norm, expected);
    EXPECT_GT(norm, 0);
    static_cast<void>(gradients);
    optimizer.step();
  });
  auto model = make_net<ShardedNet>();
  FullySharded sharded(model);
  optim::SGD optimizer(sharded.parameters(), 0.1);
  loss_of(model, 0).backward();
  auto plain = make_net<Net>();
  DistributedOptimizer other(optim::SGD(plain->parameters(), 0.1), plain->named_parameters());
  loss_of(plain, 0).backward();
  EXPECT_NEAR(clip_grad_norm(optimizer, 1e-3), clip_grad_norm(other, 1e-3), 1e-6);
  EXPECT_NEAR(clip_grad_norm(optimizer, 1e9), 1e-3, 1e-6);
}

TEST_F(FullyShardedObstacles, RanksSkipTheSameScaledSteps) {
  auto model = make_net<ShardedNet>();
  FullySharded sharded(model);
  optim::SGD optimizer(sharded.parameters(), 0.1);
  GradScaler scaler;
  for (int step = 0; step < 3; ++step) {
    optimizer.zero_grad();
    Tensor loss = loss_of(model, step);
    if (step == 1 && rank() == 0) {
      // Only one element of one rank's shard overflows.
      scaler.scale(loss).backward();
      sharded.parameters().front().mutable_grad()[0] = std::numeric_limits<float>::infinity();
    } else {
      scaler.scale(loss).backward();
    }
    EXPECT_EQ(scaler.step(optimizer), step != 1);
    scaler.update();
  }
}

TEST_F(FullyShardedObstacles, FrozenParametersStay) {
  const auto freeze = [](auto& model) {
    model->blocks[0]->up->weight.set_requires_grad(false);
    // The gradients of the rest are complete before backward needs these.
    for (auto& parameter : model->blocks[1]->norm->parameters()) parameter.set_requires_grad(false);
    for (auto& parameter : model->blocks[1]->up->parameters()) parameter.set_requires_grad(false);
    for (auto& parameter : model->blocks[2]->parameters()) parameter.set_requires_grad(false);
    model->input->weight.set_requires_grad(false);
  };
  auto model = make_net<ShardedNet>();
  freeze(model);
  FullySharded sharded(model);
  optim::AdamW optimizer(sharded.parameters(), adam_options);
  auto expected = make_net<Net>();
  freeze(expected);
  DistributedOptimizer plain(optim::AdamW(expected->parameters(), adam_options),
                             expected->named_parameters());
  for (int step = 0; step < 3; ++step) {
    usual(model, sharded, optimizer, step);
    usual(expected, plain, plain, step);
  }
  expect_same_state(sharded.full_state(), state(*expected));
}

struct TiedImpl : nn::Module {
  explicit TiedImpl(const Tensor& shared) : weight(register_parameter("weight", shared)) {}
  Tensor forward(const Tensor& input) { return ::torch::tanh(input.matmul(weight)); }
  Tensor weight;
};
TORCH_MODULE(Tied);

// Two blocks and the model itself use one weight.
template <typename Holder>
struct TiedNetImpl : nn::Module {
  TiedNetImpl() {
    const Tensor shared = ::torch::randn({5, 5}).set_requires_grad(true);
    first = register_module("first", Holder(shared));
    second = register_module("second", Holder(shared));
    last = register_parameter("last", ::torch::randn({5}));
  }
  Tensor forward(const Tensor& data) {
    return second->forward(first->forward(data)).matmul(first->weight) * last;
  }
  Holder first{nullptr};
  Holder second{nullptr};
  Tensor last;
};

TEST_F(FullyShardedObstacles, ASharedParameterBelongsToTheUnitAroundItsUses) {
  ::torch::manual_seed(5);
  Sharded<nn::ModuleHolder<TiedNetImpl<Sharded<Tied>>>> model;
  FullySharded sharded(model);
  EXPECT_EQ(sharded.parameters().size(), 2);
  optim::AdamW optimizer(sharded.parameters(), adam_options);
  ::torch::manual_seed(5);
  nn::ModuleHolder<TiedNetImpl<Tied>> expected;
  NamedParameters names{{"weight", expected->first->weight}, {"last", expected->last}};
  DistributedOptimizer plain(
      optim::AdamW(std::vector<Tensor>{expected->first->weight, expected->last}, adam_options),
      names);
  for (int step = 0; step < 3; ++step) {
    usual(model, sharded, optimizer, step);
    usual(expected, plain, plain, step);
  }
  expect_same_state(sharded.full_state(), state(*expected));
  const ConstructSharded guard;
  using Model = Sharded<nn::ModuleHolder<TiedNetImpl<Sharded<Tied>>>>;
  EXPECT_THAT(error_of<InvalidArgument>([] { Model(); }).what(),
              testing::HasSubstr("shared with another unit"));
}

TEST_F(FullyShardedObstacles, ComputesInAnotherDtype) {
  auto model = make_net<ShardedNet>();
  FullySharded sharded(model, {.compute = ::torch::kBFloat16});
  optim::AdamW optimizer(sharded.parameters(), adam_options);
  std::vector<double> losses;
  for (int step = 0; step < 30; ++step) {
    optimizer.zero_grad();
    const Tensor loss =
        model->forward(data_of(0).to(::torch::kBFloat16)).to(::torch::kFloat).square().mean();
    loss.backward();
    losses.push_back(loss.item<double>());
    optimizer.step();
  }
  EXPECT_LT(losses.back(), losses.front() / 2);
  for (const Tensor& shard : sharded.parameters()) {
    EXPECT_EQ(shard.scalar_type(), ::torch::kFloat);
    EXPECT_EQ(shard.grad().scalar_type(), ::torch::kFloat);
  }
}

TEST_F(FullyShardedObstacles, ConstructsWithoutTheWholeModel) {
  auto model = [] {
    const ConstructSharded guard;
    return make_net<ShardedNet>();
  }();
  EXPECT_TRUE(std::isnan(model->blocks[0]->up->weight.sum().item<float>()));
  EXPECT_TRUE(std::isnan(model->input->weight.sum().item<float>()));
  EXPECT_THROW(model->forward(data_of(0)), InvalidArgument);
  FullySharded sharded(model);
  expect_same_state(sharded.full_state(), state(*make_net<Net>()));
}

TEST_F(FullyShardedObstacles, LoadsTheStateOfAWholeModel) {
  auto trained = make_net<Net>();
  {
    const ::torch::NoGradGuard no_grad;
    for (auto& parameter : trained->parameters()) parameter.mul_(1.5);
  }
  auto model = make_net<ShardedNet>();
  FullySharded sharded(model);
  StateDict saved = state(*trained);
  sharded.load_full_state(saved);
  expect_same_state(sharded.full_state(0).empty() ? saved : sharded.full_state(0), saved);
  EXPECT_TRUE(rank() == 0 || sharded.full_state(0).empty());
  saved.tensors.erase("block1.up.bias");
  EXPECT_THAT(error_of<InvalidArgument>([&] { sharded.load_full_state(saved); }).what(),
              testing::HasSubstr("lacks 'block1.up.bias'"));
}

struct ScaledImpl : nn::Module {
  ScaledImpl() : scale(register_parameter("scale", ::torch::tensor(0.5F))) {}
  Tensor forward(const Tensor& input) { return input * scale; }
  Tensor scale;
};
TORCH_MODULE(Scaled);

TEST_F(FullyShardedObstacles, AParameterMayHaveNoDimensions) {
  Sharded<Scaled> model;
  FullySharded sharded(model);
  optim::SGD optimizer(sharded.parameters(), 0.1);
  Scaled expected;
  DistributedOptimizer plain(optim::SGD(expected->parameters(), 0.1), expected->named_parameters());
  for (int step = 0; step < 3; ++step) {
    usual(model, sharded, optimizer, step);
    usual(expected, plain, plain, step);
  }
  expect_same_state(sharded.full_state(), state(*expected));
}

}  // namespace
}  // namespace kolo::internal::testing_support
