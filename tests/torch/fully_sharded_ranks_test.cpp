// SPDX-License-Identifier: Apache-2.0
// FullySharded on ranks that do different things: nothing hangs, and nothing stays wrong.
#include "fully_sharded_network.hpp"

#include <optional>

namespace kolo::internal::testing_support {
namespace {

using FullyShardedRanks = TorchTest;

struct Pair {
  explicit Pair(const FullyShardedOptions& how = {}) : sharded(model, how) {}

  /// Both train, and have the same bits afterwards.
  void train(int from, int to) {
    for (int step = from; step < to; ++step) {
      usual(model, sharded, optimizer, step);
      usual(expected, plain, plain, step);
    }
    expect_same_state(sharded.full_state(), state(*expected));
  }

  ShardedNet model = make_net<ShardedNet>();
  Net expected = make_net<Net>();
  FullySharded sharded;
  optim::AdamW optimizer{sharded.parameters(), optim::AdamWOptions(0.01)};
  DistributedOptimizer<optim::AdamW> plain{
      optim::AdamW(expected->parameters(), optim::AdamWOptions(0.01)),
      expected->named_parameters()};
};

bool is_last() { return rank() == size() - 1; }

// How one rank's block differs in a step.
using Change = std::function<Tensor(const std::function<Tensor(const Tensor&)>&, const Tensor&)>;

void expect_same_with(const Change& change, std::size_t block,
                      const FullyShardedOptions& how = {}) {
  Pair pair(how);
  pair.train(0, 1);
  const auto wrap = [&](std::size_t& call) {
    return [&](const auto& forward, const Tensor& hidden) {
      return call++ == block && is_last() ? change(forward, hidden) : forward(hidden);
    };
  };
  std::size_t calls = 0;
  std::size_t plain_calls = 0;
  pair.model->wrap = wrap(calls);
  pair.expected->wrap = wrap(plain_calls);
  pair.train(1, 2);
  pair.model->wrap = nullptr;
  pair.expected->wrap = nullptr;
  pair.train(2, 3);
}

// The result of a block does not depend on its parameters on one rank.
TEST_F(FullyShardedRanks, ABlockMayLeaveItsParametersUnused) {
  for (const int ahead : {0, 1}) {
    for (std::size_t block = 0; block < 4; ++block) {
      expect_same_with([](const auto&, const Tensor& hidden) { return hidden; }, block,
                       {.units_ahead = ahead});
      expect_same_with([](const auto& forward,
                          const Tensor& hidden) { return forward(hidden).detach() * 0 + hidden; },
                       block, {.units_ahead = ahead});
    }
  }
}

struct DroppingImpl : nn::Module {
  explicit DroppingImpl(int width) : layer(register_module("layer", nn::Linear(width, width))) {}
  Tensor forward(const Tensor& input) {
    if (fails_backward) return layer(Throw::apply(layer(input)));
    if (returns_input) return input;
    return multiplies ? input * 1.0 : input + layer(input);
  }
  nn::Linear layer;
  bool returns_input = false;
  bool multiplies = false;
  bool fails_backward = false;
};
TORCH_MODULE(Dropping);
template <typename Holder>
struct DroppingNetImpl : nn::Module {
  DroppingNetImpl() {
    for (int i = 0; i < 4; ++i)
      model.push_back(
          register_module("model" + std::string(i == 0 ? "" : std::to_string(i)), Holder(5)));
  }
  Tensor forward(const Tensor& data) {
    Tensor hidden = data;
    for (auto& block : model) hidden = block->forward(hidden);
    return hidden;
  }
  std::vector<Holder> model{};
};

// One unit is called "model", and the model has no parameters of its own.
TEST_F(FullyShardedRanks, AUnitMayDropItselfOrFailInside) {
  ::torch::manual_seed(1);
  Sharded<nn::ModuleHolder<DroppingNetImpl<Sharded<Dropping>>>> model;
  FullySharded sharded(model);
  optim::AdamW optimizer(sharded.parameters(), optim::AdamWOptions(0.01));
  ::torch::manual_seed(1);
  nn::ModuleHolder<DroppingNetImpl<Dropping>> expected;
  DistributedOptimizer plain(optim::AdamW(expected->parameters(), optim::AdamWOptions(0.01)),
                             expected->named_parameters());
  for (int step = 0; step < 8; ++step) {
    const auto block = static_cast<std::size_t>(step % 4);
    const auto drop = [&](auto& net, bool drops) {
      (step % 2 == 0 ? net->model[block]->returns_input : net->model[block]->multiplies) = drops;
    };
    drop(model, step > 0 && is_last());
    drop(expected, step > 0 && is_last());
    usual(model, sharded, optimizer, step);
    usual(expected, plain, plain, step);
    drop(model, false);
    drop(expected, false);
    if (size() == 1) continue;
    model->model[block]->fails_backward = is_last();
    if (is_last()) {
      EXPECT_THROW(loss_of(model, step).backward(), std::runtime_error);
    } else {
      EXPECT_THROW(loss_of(model, step).backward(), BackwardFailed);
    }
    model->model[block]->fails_backward = false;
  }
  expect_same_state(sharded.full_state(), state(*expected));
}

TEST_F(FullyShardedRanks, TakingPartCompletesWhatARankHasLeft) {
  Pair pair;
  pair.train(0, 1);
  if (size() == 1) return;
  // After a forward that threw.
  if (is_last()) {
    pair.model->blocks[2]->fails = true;
    EXPECT_THROW(loss_of(pair.model, 5), std::runtime_error);
    pair.model->blocks[2]->fails = false;
    EXPECT_THROW(pair.sharded.take_part(), BackwardFailed);
  } else {
    EXPECT_THROW(loss_of(pair.model, 5).backward(), BackwardFailed);
  }
  pair.train(1, 2);
  // After a forward, whose loss threw.
  if (is_last()) {
    (void)loss_of(pair.model, 6);
    pair.sharded.take_part_in_backward();
  } else {
    loss_of(pair.model, 6).backward();
  }
  // Between forward and backward all ranks evaluate.
  if (!is_last()) {
    const Tensor loss = loss_of(pair.model, 7);
    const ::torch::NoGradGuard no_grad;
    (void)loss_of(pair.model, 8);
    const ::torch::AutoGradMode gradients(true);
    loss.backward();
  } else {
    (void)loss_of(pair.model, 7);
    {
      const ::torch::NoGradGuard no_grad;
      (void)loss_of(pair.model, 8);
    }
    pair.sharded.take_part_in_backward();
  }
  pair.train(2, 3);
}

TEST_F(FullyShardedRanks, AnEarlierLossMayFollowAForwardThatThrew) {
  Pair pair;
  pair.train(0, 1);
  if (size() == 1) return;
  const Tensor first = loss_of(pair.model, 5);
  if (is_last()) {
    pair.model->blocks[1]->fails = true;
    EXPECT_THROW(loss_of(pair.model, 6), std::runtime_error);
    pair.model->blocks[1]->fails = false;
    EXPECT_ANY_THROW(first.backward());
  } else {
    (void)loss_of(pair.model, 6);
    EXPECT_THROW(first.backward(), BackwardFailed);
  }
  pair.train(1, 2);
}

TEST_F(FullyShardedRanks, WhatIsHeldWholeIsForEachRankItself) {
  Pair pair;
  for (int round = 0; round < 2; ++round) {
    {
      const auto whole = pair.sharded.gather();
      const ::torch::NoGradGuard no_grad;
      if (rank() == 0) {
        EXPECT_TRUE(same_bits(loss_of(pair.model, 4), loss_of(pair.expected, 4)));
        pair.model->blocks[0]->fails = true;
        EXPECT_THROW(loss_of(pair.model, 4), std::runtime_error);
        pair.model->blocks[0]->fails = false;
      }
      const ::torch::AutoGradMode gradients(true);
      EXPECT_THROW(loss_of(pair.model, 4), InvalidArgument);
    }
    pair.train(2 * round, 2 * round + 2);
  }
}

// LibTorch's SGD changes no version of a parameter, and units stay whole after a forward.
TEST_F(FullyShardedRanks, AForwardSeesTheStepAfterTheLastForward) {
  Pair pair;
  optim::SGD optimizer(pair.sharded.parameters(), 0.5);
  loss_of(pair.model, 0).backward();
  (void)loss_of(pair.model, 1);  // recorded, without a backward
  optimizer.step();
  const Tensor loss = loss_of(pair.model, 2);
  load_state(*pair.expected, pair.sharded.full_state());
  EXPECT_TRUE(same_bits(loss, loss_of(pair.expected, 2)));
}

TEST_F(FullyShardedRanks, GradientsOfLocalPassesCanBeDropped) {
  Pair pair;
  {
    const auto local = pair.sharded.no_sync();
    loss_of(pair.model, 9).backward();
  }
  pair.sharded.zero_grad();
  pair.train(0, 2);
}

// A rank's backward throws before it comes to a unit, in a pass that reduces after one that does
// not, and the other way round.
TEST_F(FullyShardedRanks, APassThatFailsEarlyReducesAsItWouldHave) {
  Pair pair;
  pair.train(0, 1);
  if (size() == 1) return;
  for (const bool local : {true, false}) {
    std::optional<NoSync> guard;
    if (!local) {
      guard.emplace(pair.sharded.no_sync());
      loss_of(pair.model, 3).backward();
      guard.reset();
    } else {
      loss_of(pair.model, 3).backward();
      guard.emplace(pair.sharded.no_sync());
    }
    if (is_last()) {
      EXPECT_THROW(Throw::apply(loss_of(pair.model, 4)).backward(), std::runtime_error);
    } else {
      EXPECT_THROW(loss_of(pair.model, 4).backward(), BackwardFailed);
    }
    guard.reset();
    pair.sharded.zero_grad();
  }
  pair.train(1, 2);
}

TEST_F(FullyShardedRanks, JoiningIsRefused) {
  if (size() == 1) return;
  Pair pair;
  if (is_last()) {
    join();
  } else {
    const auto error = error_of<Mismatch>([&] { loss_of(pair.model, 1); });
    EXPECT_THAT(error.what(), testing::HasSubstr("take_part()"));
    join();
  }
}

// The units are registered in another order than they are used.
template <typename Holder>
struct BackwardsImpl : nn::Module {
  BackwardsImpl() {
    for (int i = 0; i < 3; ++i)
      blocks.push_back(register_module("block" + std::to_string(i), Holder(5)));
  }
  Tensor forward(const Tensor& data) {
    Tensor hidden = data;
    for (auto block = blocks.rbegin(); block != blocks.rend(); ++block)
      hidden = (*block)->forward(hidden);
    return hidden;
  }
  std::vector<Holder> blocks{};
};

TEST_F(FullyShardedRanks, ARankMayLeaveTheFirstForwardToTheOthers) {
  if (size() == 1) return;
  for (const bool throws : {true, false}) {
    Sharded<nn::ModuleHolder<BackwardsImpl<Sharded<Block>>>> model;
    FullySharded sharded(model);
    optim::SGD optimizer(sharded.parameters(), 0.1);
    if (!is_last()) {
      const auto backward = [&] { loss_of(model, 0).backward(); };
      if (throws) {
        EXPECT_THROW(backward(), BackwardFailed);
      } else {
        backward();
      }
    } else if (throws) {
      model->blocks[1]->fails = true;
      EXPECT_THROW(loss_of(model, 0), std::runtime_error);
      model->blocks[1]->fails = false;
      EXPECT_THROW(sharded.take_part(), BackwardFailed);
    } else {
      sharded.take_part();
    }
    for (int step = 1; step < 3; ++step) usual(model, sharded, optimizer, step);
  }
}

// One rank's backward throws before it comes to the first of the models, and between them.
TEST_F(FullyShardedRanks, ABackwardThatThrowsFailsAllModelsOfItsGraph) {
  if (size() == 1) return;
  auto front = make_net<ShardedNet>();
  FullySharded sharded_front(front);
  Sharded<nn::ModuleHolder<BackwardsImpl<Sharded<Block>>>> back;
  FullySharded sharded_back(back);
  nn::Linear first(5, 5);
  DistributedOptimizer plain(optim::SGD(first->parameters(), 0.1), first->named_parameters());
  nn::Linear adapter(3, 5);
  nn::Linear last(5, 1);
  DistributedOptimizer plain_last(optim::SGD(last->parameters(), 0.1), last->named_parameters());
  broadcast_parameters(*first, 0);
  broadcast_parameters(*last, 0);
  for (int place = 0; place < 5; ++place) {
    const auto pass = [&](bool throws) {
      const auto at = [&](int here, const Tensor& tensor) {
        return throws && place == here ? Throw::apply(tensor) : tensor;
      };
      Tensor hidden = at(0, first(data_of(place)));
      hidden = at(1, front->forward(hidden));
      hidden = at(2, back->forward(adapter(hidden)));
      hidden = at(3, last(hidden));
      at(4, hidden.square().mean()).backward();
    };
    if (is_last()) {
      EXPECT_THROW(pass(true), std::runtime_error);
    } else {
      EXPECT_THROW(pass(false), BackwardFailed);
    }
    for (auto* sharded : {&sharded_front, &sharded_back}) sharded->zero_grad();
    plain.zero_grad();
    plain_last.zero_grad();
    pass(false);
    plain.step();
    plain_last.step();
    plain.zero_grad();
    plain_last.zero_grad();
  }
}

}  // namespace
}  // namespace kolo::internal::testing_support
