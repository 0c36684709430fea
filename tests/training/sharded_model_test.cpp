// SPDX-License-Identifier: Apache-2.0
// kolo::ShardedModel: the same training as with DistributedOptimizer.
#include <cstddef>
#include <vector>

#include "../session/fixture.hpp"
#include "sharded_model_trainer.hpp"

namespace kolo::internal {
namespace {

class ShardedChain : public WithSession {
 protected:
  ShardedModel make(const ShardedModelOptions& options = {}) {
    return ShardedModel(Chain::units(), Chain::fill, options);
  }

  /// Trains both for 20 steps. `passes(step)` are those of this rank in a step.
  template <typename Passes>
  void expect_same_bits(const ShardedModelOptions& options, const Passes& passes) {
    ShardedModel model = make(options);
    ElementwiseAdam adam;
    WholeChain chain;
    DistributedOptimizer optimizer(chain, {.op = options.op, .compression = options.compression});
    for (int step = 0; step < 20; ++step) {
      chain.zero();
      model.zero_gradients();
      const std::vector<Pass> all = passes(step);
      for (std::size_t i = 0; i < all.size(); ++i) {
        Pass pass = all[i];
        chain.train(pass);
        forward(model, pass);
        backward(model, pass, {.reduce = i + 1 == all.size()});
      }
      optimizer.step();
      adam.step(model.parameters(), model.gradients());
    }
    EXPECT_EQ(whole_of(model.parameters()), chain.weights());
  }
};

TEST_F(ShardedChain, TrainsAsTheReplicatedOptimizer) {
  const auto one = [&](int step) { return std::vector{Pass(batch_of(step, me_))}; };
  expect_same_bits({}, one);
  expect_same_bits({.op = ReduceOp::sum}, one);
  expect_same_bits({.reshard_after_forward = false}, one);
  expect_same_bits({.units_ahead = 0}, one);
  expect_same_bits({.units_ahead = 3}, one);
}

TEST_F(ShardedChain, PassesWithoutReductionAccumulate) {
  expect_same_bits({}, [&](int step) {
    return std::vector{Pass(batch_of(2 * step, me_)), Pass(batch_of(2 * step + 1, me_))};
  });
}

TEST_F(ShardedChain, RanksSkipUnits) {
  expect_same_bits({}, [&](int step) {
    return std::vector{
        Pass(batch_of(step, me_), {static_cast<std::size_t>(me_ + step) % Chain::layers})};
  });
  expect_same_bits({}, [&](int step) {  // layer 1 is skipped by all
    return std::vector{Pass(batch_of(step, me_), {1, static_cast<std::size_t>(me_)})};
  });
}

TEST_F(ShardedChain, ARankWithoutDataTakesPart) {
  ShardedModel model = make();
  ElementwiseAdam adam;
  WholeChain chain;
  DistributedOptimizer optimizer(chain);
  for (int step = 0; step < 20; ++step) {
    chain.zero();
    model.zero_gradients();
    if (step % n_ == me_) {
      model.take_part();
    } else {
      Pass pass(batch_of(step, me_));
      chain.train(pass);
      forward(model, pass);
      backward(model, pass);
    }
    optimizer.step();
    adam.step(model.parameters(), model.gradients());
  }
  EXPECT_EQ(whole_of(model.parameters()), chain.weights());
}

TEST_F(ShardedChain, SeveralBackwardsAddToTheShards) {
  ShardedModel model = make();
  Pass pass(batch_of(0, me_));
  forward(model, pass);
  backward(model, pass);
  const auto once = whole_of(model.gradients());
  forward(model, pass);
  backward(model, pass);
  const auto twice = whole_of(model.gradients());
  ASSERT_EQ(once.size(), twice.size());
  for (std::size_t i = 0; i < once.size(); ++i)
    for (std::size_t k = 0; k < once[i].size(); ++k) EXPECT_EQ(twice[i][k], 2 * once[i][k]);
}

TEST_F(ShardedChain, ZeroGradientsDropsThoseOfPassesWithoutReduction) {
  ShardedModel model = make();
  Pass pass(batch_of(0, me_));
  forward(model, pass);
  backward(model, pass);
  const auto once = whole_of(model.gradients());
  forward(model, pass);
  backward(model, pass, {.reduce = false});
  EXPECT_EQ(whole_of(model.gradients()), once);
  model.zero_gradients();
  forward(model, pass);
  backward(model, pass);
  EXPECT_EQ(whole_of(model.gradients()), once);
}

TEST_F(ShardedChain, AtMostTwoUnitsAreWholeBesidesTheRoot) {
  constexpr std::size_t layers = 9;
  constexpr std::int64_t unit_bytes = 4096;
  constexpr std::int64_t root_bytes = 512;
  std::vector<ShardedModel::Unit> units{{"root", {{"w", root_bytes / 4}}}};
  for (std::size_t i = 0; i < layers; ++i)
    units.push_back({"layer." + std::to_string(i), {{"w", unit_bytes / 4}}});
  std::size_t filled = 0;
  ShardedModel model(units, [&](std::size_t unit, std::span<const TensorView> parameters) {
    EXPECT_EQ(unit, filled++);
    EXPECT_EQ(parameters.size(), 1U);
  });
  EXPECT_EQ(model.counters().most_parameter_bytes, unit_bytes);
  for (int step = 0; step < 3; ++step) {
    auto ahead = model.begin_forward();
    for (std::size_t i = 1; i <= layers; ++i) (void)ahead.use(i);
    ahead.end();
    auto back = model.begin_backward();
    for (std::size_t i = layers; i > 0; --i) (void)back.use(i);
    back.end();
  }
  EXPECT_LE(model.counters().most_parameter_bytes, 2 * unit_bytes + root_bytes);
  EXPECT_LE(model.counters().most_gradient_bytes, 2 * unit_bytes + root_bytes);
  // The last unit and the root stay from forward to backward.
  EXPECT_EQ(model.counters().gathers, 3 * (1 + layers + layers - 1));
  EXPECT_EQ(model.counters().reductions, 3 * (layers + 1));
}

TEST_F(ShardedChain, WholeParametersAreThoseOfAllShards) {
  ShardedModel model = make();
  const ShardedModel::Whole whole = model.gather();
  const auto expected = whole_of(model.parameters());
  std::size_t next = 0;
  for (std::size_t unit = 0; unit < Chain::units().size(); ++unit)
    for (const ConstTensorView& view : whole.parameters(unit)) {
      const auto* const data = static_cast<const float*>(view.data());
      EXPECT_EQ(std::vector<float>(data, data + view.elements()), expected[next++]);
    }
  EXPECT_EQ(next, expected.size());
}

TEST_F(ShardedChain, ShardsSayWhereTheyLie) {
  ShardedModel model = make();
  const auto parameters = model.parameters();
  const auto shards = model.shards();
  ASSERT_EQ(parameters.size(), shards.size());
  EXPECT_EQ(parameters[2].name, "layer.0.w");
  for (std::size_t i = 0; i < shards.size(); ++i) {
    EXPECT_EQ(shards[i].parameter, i);
    EXPECT_EQ(shards[i].size(), parameters[i].tensor.elements());
  }
  for (std::int64_t k = 0; k < shards[2].size(); ++k)
    EXPECT_EQ(static_cast<const float*>(parameters[2].tensor.data())[k],
              Chain::initial(1, 0, static_cast<std::size_t>(shards[2].begin + k)));
}

TEST_F(ShardedChain, EvaluationGathersAndKeepsNothing) {
  ShardedModel model = make();
  Pass pass(batch_of(0, me_));
  forward(model, pass);
  backward(model, pass);
  const auto gradients = whole_of(model.gradients());
  auto evaluation = model.begin_evaluation();
  if (me_ == 0) {  // the other ranks have no data
    const auto layer = evaluation.use(2);
    EXPECT_EQ(layer.parameter<float>(0)[5], Chain::initial(2, 0, 5));
    EXPECT_TRUE(layer.gradients().empty());
  }
  evaluation.end();
  EXPECT_EQ(whole_of(model.gradients()), gradients);
  EXPECT_THROW((void)model.begin_backward(), InvalidArgument);
}

TEST_F(ShardedChain, AllFloatingPointTypesTrain) {
  ShardedModel model(
      {{"root", {}},
       {"layer", {{"f64", 5, DType::f64}, {"bf16", 3, DType::bf16}, {"f16", 7, DType::f16}}}},
      {}, {.op = ReduceOp::sum});
  for (int pass = 0; pass < 2; ++pass) {
    auto ahead = model.begin_forward();
    (void)ahead.use(1);
    ahead.end();
    auto back = model.begin_backward();
    {
      const auto layer = back.use(1);
      for (double& gradient : layer.gradient<double>(0)) gradient = 1.5;
      constexpr std::uint16_t one_bf16 = 0x3f80;
      constexpr std::uint16_t one_f16 = 0x3c00;
      for (int k = 0; k < 3; ++k)
        static_cast<std::uint16_t*>(layer.gradients()[1].data())[k] = one_bf16;
      for (int k = 0; k < 7; ++k)
        static_cast<std::uint16_t*>(layer.gradients()[2].data())[k] = one_f16;
    }
    back.end();
  }
  double squares = 5 * (3.0 * n_) * (3.0 * n_) + 10 * (2.0 * n_) * (2.0 * n_);
  EXPECT_NEAR(model.clip_grad_norm(1e9), std::sqrt(squares), 1e-9 * squares);
}

TEST_F(ShardedChain, TheNormIsThatOfAllShards) {
  ShardedModel model = make();
  WholeChain chain;
  DistributedOptimizer optimizer(chain);
  Pass pass(batch_of(0, me_));
  chain.train(pass);
  forward(model, pass);
  backward(model, pass);
  ReducedGradients reduced = optimizer.reduce();
  const double expected = optimizer.clip_grad_norm(reduced, 0.25);
  const double norm = model.clip_grad_norm(0.25);
  EXPECT_NEAR(norm, expected, 1e-9 * expected);
  EXPECT_NEAR(model.clip_grad_norm(1e9), 0.25, 1e-4);
  double largest = norm;
  allreduce(largest, {.op = ReduceOp::max});
  EXPECT_EQ(largest, norm);
}

}  // namespace
}  // namespace kolo::internal
