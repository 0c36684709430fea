// SPDX-License-Identifier: Apache-2.0
// DistributedOptimizer: its type, the gradients that it reduces, and the errors that it raises.
#include "support.hpp"

#include <type_traits>

namespace kolo::internal::testing_support {
namespace {

namespace nn = ::torch::nn;
namespace optim = ::torch::optim;
using testing::HasSubstr;

using DistributedSGD = DistributedOptimizer<optim::SGD>;
static_assert(std::is_base_of_v<optim::SGD, DistributedSGD>);
static_assert(std::is_convertible_v<DistributedSGD&, optim::Optimizer&>);
static_assert(std::is_move_constructible_v<DistributedSGD>);
static_assert(!std::is_copy_constructible_v<DistributedSGD>);
// The constructor for lvalues is declared, so that its message is what a program gets.
static_assert(std::is_constructible_v<DistributedSGD, optim::SGD&>);
static_assert(std::is_constructible_v<ShardedOptimizer<optim::SGD>, optim::SGD&>);
static_assert(
    std::is_same_v<DistributedSGD, decltype(DistributedOptimizer(std::declval<optim::SGD>(),
                                                                 {.op = ReduceOp::sum}))>);
static_assert(
    std::is_same_v<DistributedSGD, decltype(DistributedOptimizer(std::declval<DistributedSGD>()))>);

using OptimizerTest = TorchTest;

TEST_F(OptimizerTest, AveragesOrSums) {
  ::torch::Tensor averaged = parameter({1.0, 2.0});
  ::torch::Tensor summed = parameter({1.0, 2.0});
  DistributedOptimizer averaging(optim::SGD({averaged}, 1.0));
  DistributedOptimizer summing(optim::SGD({summed}, 1.0), {.op = ReduceOp::sum});
  backward(averaged, rank() + 1);
  backward(summed, rank() + 1);
  averaging.step();
  summing.step();
  expect_close(averaged, values({1.0, 2.0}) - mean_rank());
  expect_close(summed, values({1.0, 2.0}) - mean_rank() * size());
}

TEST_F(OptimizerTest, TakesOverAnOptimizerThatExists) {
  ::torch::Tensor w = parameter({1.0});
  optim::SGD optimizer({w}, 1.0);
  DistributedOptimizer wrapper(std::move(optimizer));
  backward(w, rank() + 1);
  wrapper.step();
  expect_close(w, values({1.0 - mean_rank()}));
}

TEST_F(OptimizerTest, RefusesComplexParametersAtOnce) {
  const auto complex = ::torch::zeros({2}, ::torch::kComplexFloat).set_requires_grad(true);
  const auto error = error_of<InvalidArgument>([&] {
    DistributedOptimizer(optim::SGD({complex}, 1.0), {{"spectrum", complex}});
  });
  EXPECT_EQ(error.tensor(), "spectrum");
  EXPECT_THAT(error.what(), HasSubstr("view_as_real"));
  const auto frozen = complex.detach();
  const DistributedOptimizer accepted(optim::SGD({frozen, parameter({1.0})}, 1.0));
}

TEST_F(OptimizerTest, MayBeMovedWhileGradientsAreReduced) {
  ::torch::Tensor w = parameter({1.0});
  DistributedOptimizer first(optim::SGD({w}, 1.0), {{"w", w}});
  backward(w, rank() + 1);
  DistributedOptimizer second = std::move(first);
  second.step();
  second.zero_grad();
  backward(w, 2.0 * (rank() + 1));
  second.step();
  expect_close(w, values({1.0 - 3.0 * mean_rank()}));
}

TEST_F(OptimizerTest, HooksOutliveTheOptimizerHarmlessly) {
  ::torch::Tensor w = parameter({1.0});
  { DistributedOptimizer optimizer(optim::SGD({w}, 1.0)); }
  backward(w, 3.0);
  expect_close(w.grad(), values({3.0}));
}

TEST_F(OptimizerTest, ParametersThatSomeRanksDoNotUseGetZerosThere) {
  ::torch::Tensor used = parameter({1.0});
  ::torch::Tensor unused = parameter({1.0, 1.0});
  ::torch::Tensor sometimes = parameter({1.0});
  for (const int num_groups : {0, 1, 2}) {
    for (::torch::Tensor* w : {&used, &unused, &sometimes}) w->mutable_grad().reset();
    DistributedOptimizer optimizer(
        optim::SGD({unused, sometimes, used}, optim::SGDOptions(0.0).weight_decay(1.0)),
        {{"unused", unused}, {"sometimes", sometimes}, {"used", used}}, {.num_groups = num_groups});
    for (int step = 0; step < 3; ++step) {
      optimizer.zero_grad();
      ::torch::Tensor loss = used.sum() * (rank() + 1);
      if (rank() == size() - 1) loss = loss + sometimes.sum() * 12.0;
      loss.backward();
      EXPECT_FALSE(unused.grad().defined());
      expect_close(sometimes.grad(), values({12.0 / size()}));
      expect_close(used.grad(), values({mean_rank()}));
      optimizer.step();
    }
    EXPECT_FALSE(unused.grad().defined());
  }
}

TEST_F(OptimizerTest, TiedWeightsAreReducedOnce) {
  ::torch::Tensor w = parameter({1.0});
  ::torch::Tensor b = parameter({1.0});
  DistributedOptimizer optimizer(optim::SGD({w, w, b}, 0.5),
                                 {{"encoder", w}, {"decoder", w}, {"bias", b}});
  (w * (rank() + 1) + w * 3.0 + b).sum().backward();
  optimizer.synchronize();
  expect_close(w.grad(), values({mean_rank() + 3.0}));
  optimizer.step();
  expect_close(w, values({1.0 - (mean_rank() + 3.0)}));  // listed twice: LibTorch steps twice
  expect_close(b, values({0.5}));
}

TEST_F(OptimizerTest, FrozenParametersAreLeftOutUntilUnfrozen) {
  ::torch::Tensor head = parameter({1.0});
  ::torch::Tensor body = parameter({1.0});
  body.set_requires_grad(false);
  DistributedOptimizer optimizer(optim::SGD({body, head}, 1.0), {{"body", body}, {"head", head}});
  const auto train = [&] {
    optimizer.zero_grad();
    ((head + body) * (rank() + 1)).sum().backward();
    optimizer.step();
  };
  train();
  EXPECT_FALSE(body.grad().defined());
  body.set_requires_grad(true);
  train();
  train();
  expect_close(head, values({1.0 - 3.0 * mean_rank()}));
  expect_close(body, values({1.0 - 2.0 * mean_rank()}));
  body.set_requires_grad(false);
  optimizer.zero_grad();
  backward(head, rank() + 1);
  optimizer.synchronize();
  expect_close(head.grad(), values({mean_rank()}));
}

TEST_F(OptimizerTest, ParametersMayBeAddedLater) {
  ::torch::Tensor w = parameter({1.0});
  ::torch::Tensor later = parameter({1.0});
  DistributedOptimizer optimizer(optim::SGD({w}, 1.0), {{"w", w}});
  optimizer.add_param_group(optim::OptimizerParamGroup({later}));
  for (int step = 0; step < 2; ++step) {
    optimizer.zero_grad();
    ((w + later) * (rank() + 1)).sum().backward();
    optimizer.step();
  }
  expect_close(w, values({1.0 - 2.0 * mean_rank()}));
  expect_close(later, values({1.0 - 2.0 * mean_rank()}));
}

// The old one still requires a gradient, and has one in the same passes.
TEST_F(OptimizerTest, AReplacedParameterAndTheNewOneAreReducedApart) {
  ::torch::Tensor old = parameter({1.0});
  ::torch::Tensor now = parameter({1.0, 2.0});
  DistributedOptimizer optimizer(optim::SGD({old}, 1.0));
  optimizer.param_groups()[0].params()[0] = now;
  for (int step = 0; step < 2; ++step) {
    optimizer.zero_grad();
    ((old.sum() + now.sum()) * (rank() + 1)).backward();
    optimizer.step();
  }
  expect_close(now, values({1.0, 2.0}) - 2.0 * mean_rank());
  expect_close(old, values({1.0}));
}

TEST_F(OptimizerTest, TwoOptimizersMayUseTheSameNames) {
  ::torch::Tensor generator = parameter({1.0});
  ::torch::Tensor discriminator = parameter({1.0, 1.0, 1.0});
  DistributedOptimizer first(optim::SGD({generator}, 1.0), {{"0.weight", generator}});
  DistributedOptimizer second(optim::Adam({discriminator}, 0.5), {{"0.weight", discriminator}});
  for (int step = 0; step < 2; ++step) {
    first.zero_grad();
    second.zero_grad();
    ((generator + discriminator) * (rank() + 1)).sum().backward();
    if (rank() % 2 == 0) {
      first.step();
      second.step();
    } else {
      second.step();
      first.step();
    }
  }
  expect_close(generator, values({1.0 - 2 * 3.0 * mean_rank()}));
  expect_same_bits_on_all_ranks({discriminator});
}

TEST_F(OptimizerTest, ZeroGradGivesUpAStepUnderWay) {
  ::torch::Tensor w = parameter({1.0});
  ::torch::Tensor unused = parameter({1.0});
  DistributedOptimizer optimizer(optim::SGD({w, unused}, 1.0));
  for (const bool synchronized : {false, true}) {
    backward(w, 1000.0);
    if (synchronized) optimizer.synchronize();
    optimizer.zero_grad();
    EXPECT_TRUE(!w.grad().defined() || w.grad().item<double>() == 0.0);
  }
  backward(w, rank() + 1);
  optimizer.step();
  expect_close(w, values({1.0 - mean_rank()}));
}

// The function takes an argument in LibTorch 2 and none in 1.13.
template <typename Optimizer>
void zero_grad_both_ways(Optimizer& optimizer, const ::torch::Tensor& w) {
  if constexpr (requires { optimizer.zero_grad(false); }) {
    optimizer.zero_grad(false);
    expect_close(w.grad(), values({0.0}));
    optimizer.zero_grad(true);
    EXPECT_FALSE(w.grad().defined());
  } else {
    optimizer.zero_grad();
    expect_close(w.grad(), values({0.0}));
  }
}

TEST_F(OptimizerTest, ZeroGradTakesTheArgumentsOfItsBase) {
  ::torch::Tensor w = parameter({1.0});
  DistributedOptimizer optimizer(optim::SGD({w}, 1.0));
  backward(w, 1.0);
  optimizer.step();
  zero_grad_both_ways(optimizer, w);
  backward(w, rank() + 1);
  optimizer.step();
  expect_close(w, values({0.0 - mean_rank()}));
}

TEST_F(OptimizerTest, GradientsMayLieInAnotherOrder) {
  const auto factor = ::torch::arange(24, ::torch::kFloat64).reshape({2, 3, 2, 2});
  const auto start = ::torch::zeros({2, 3, 2, 2}, ::torch::kFloat64);
  ::torch::Tensor permuted = start.contiguous(at::MemoryFormat::ChannelsLast).requires_grad_();
  ::torch::Tensor mixed = start.clone().requires_grad_();
  if (rank() % 2 == 1) {  // unlike the parameter, and unlike other ranks
    mixed.mutable_grad() = start.contiguous(at::MemoryFormat::ChannelsLast);
  }
  ASSERT_FALSE(permuted.is_contiguous());
  DistributedOptimizer optimizer(optim::SGD({permuted, mixed}, 1.0));
  (factor * (permuted + mixed) * (rank() + 1)).sum().backward();
  optimizer.step();
  expect_close(permuted, -factor * mean_rank());
  expect_close(mixed, -factor * mean_rank());
}

TEST_F(OptimizerTest, ParametersNeedNames) {
  nn::Linear layer(3, 2);
  NamedParameters weight_only{{"weight", layer->weight}};
  const auto nameless = error_of<InvalidArgument>(
      [&] { DistributedOptimizer(optim::SGD(layer->parameters(), 1.0), weight_only); });
  EXPECT_THAT(nameless.what(), HasSubstr("parameter 1 of group 0 (f32 [2])"));
  NamedParameters twice{{"weight", layer->weight}, {"weight", layer->bias}};
  const auto duplicate = error_of<InvalidArgument>(
      [&] { DistributedOptimizer(optim::SGD(layer->parameters(), 1.0), twice); });
  EXPECT_EQ(duplicate.tensor(), "weight");
}

// Wraps a model that differs on the last rank; returns the error that every rank gets.
Mismatch mismatch_of(nn::Sequential model) {
  return error_of<Mismatch>([&] {
    DistributedOptimizer(optim::SGD(model->parameters(), 1.0), model->named_parameters());
  });
}

TEST_F(OptimizerTest, AModelThatDiffersIsRefusedOnEveryRank) {
  if (size() == 1) return;
  const bool last = rank() == size() - 1;
  const std::string last_rank = "rank " + std::to_string(size() - 1);

  const auto wider = mismatch_of(nn::Sequential(nn::Linear(4, 3), nn::Linear(3, last ? 6 : 5)));
  EXPECT_EQ(wider.tensor(), "1.weight");
  EXPECT_EQ(wider.ranks(), std::vector<int>{size() - 1});
  EXPECT_THAT(wider.what(), HasSubstr("f32 [5, 3] on rank 0 and f32 [6, 3] on " + last_rank));

  nn::Sequential longer(nn::Linear(4, 3));
  if (last) longer->push_back(nn::Linear(3, 1));
  const auto more = mismatch_of(longer);
  EXPECT_EQ(more.tensor(), "1.weight");
  EXPECT_THAT(more.what(), HasSubstr("on " + last_rank + " only"));

  nn::Sequential converted(nn::Linear(4, 3));
  if (last) converted->to(::torch::kFloat64);
  EXPECT_THAT(mismatch_of(converted).what(), HasSubstr("f64 [3, 4] on " + last_rank));

  nn::Sequential frozen(nn::Linear(4, 3));
  if (last) frozen->parameters()[1].set_requires_grad(false);
  EXPECT_EQ(mismatch_of(frozen).tensor(), "0.bias");

  EXPECT_DOUBLE_EQ(average(rank() + 1.0), mean_rank());  // the session goes on
}

TEST_F(OptimizerTest, AStepThatFailsOnEveryRankMayBeFollowedByAnother) {
  if (size() == 1) return;
  ::torch::Tensor w = parameter({1.0});
  DistributedOptimizer optimizer(optim::SGD({w}, 1.0), {{"w", w}},
                                 {.compare = {.at_start = false}});
  ::torch::Tensor added =
      rank() == 0 ? parameter({1.0, 1.0}) : parameter({1.0, 1.0, 1.0});  // not checked when added
  optimizer.add_param_group(optim::OptimizerParamGroup({added}));
  optimizer.zero_grad();  // adopts it
  const auto error = error_of<Mismatch>([&] { (added.sum() + w.sum()).backward(); });
  EXPECT_THAT(error.tensor(), HasSubstr("group1.0"));
  EXPECT_THAT(error.what(), HasSubstr("[2]"));
  EXPECT_THAT(error.what(), HasSubstr("[3]"));
  added.set_requires_grad(false);
  optimizer.zero_grad();
  backward(w, rank() + 1);
  optimizer.step();
  expect_close(w, values({1.0 - mean_rank()}));
}

// The last rank fails between backward and step, while a gradient is being reduced.
void train_until_a_rank_fails(std::vector<int>& who_left) {
  Session session;
  const int last = size() - 1;
  ::torch::Tensor w = parameter({1.0});
  ::torch::Tensor not_on_last = parameter({1.0});
  DistributedOptimizer optimizer(optim::SGD({w, not_on_last}, 1.0));
  backward(w, 1.0);
  if (rank() == last) throw std::runtime_error("bad data");
  try {
    backward(not_on_last, 1.0);
    optimizer.step();
  } catch (const PeerLeft& error) {
    who_left = error.ranks();
    throw;
  }
}

TEST(OptimizerDepartureTest, ARankThatThrowsAfterBackwardIsNamed) {
  int ranks = 0;
  int rank = 0;
  {
    Session session;
    ranks = size();
    rank = kolo::rank();
  }
  if (ranks == 1) return;
  std::vector<int> who_left;
  EXPECT_THROW(train_until_a_rank_fails(who_left), std::runtime_error);
  if (rank == ranks - 1) return;
  EXPECT_EQ(who_left, std::vector<int>{ranks - 1});
}

}  // namespace
}  // namespace kolo::internal::testing_support
