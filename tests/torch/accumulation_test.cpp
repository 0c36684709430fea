// SPDX-License-Identifier: Apache-2.0
// DistributedOptimizer: several backward passes per step, groups, and invalid options.
#include "support.hpp"

#include <limits>

namespace kolo::internal::testing_support {
namespace {

namespace nn = ::torch::nn;
namespace optim = ::torch::optim;
using testing::HasSubstr;

using AccumulationTest = TorchTest;
using GroupsTest = TorchTest;
using OptionsTest = TorchTest;

TEST_F(AccumulationTest, ReducesTheSumOfThePasses) {
  ::torch::Tensor w = parameter({1.0, 2.0});
  DistributedOptimizer optimizer(optim::SGD({w}, 1.0), {.backward_passes_per_step = 3});
  for (int step = 0; step < 2; ++step) {
    optimizer.zero_grad();
    for (int pass = 1; pass <= 3; ++pass) backward(w, pass * (rank() + 1));
    optimizer.synchronize();
    expect_close(w.grad(), values({6.0 * mean_rank(), 6.0 * mean_rank()}));
    optimizer.step();
  }
  expect_close(w, values({1.0, 2.0}) - 12.0 * mean_rank());
}

TEST_F(AccumulationTest, ReducesTheMeanOfThePasses) {
  ::torch::Tensor w = parameter({1.0});
  ::torch::Tensor in_one_pass = parameter({1.0});
  DistributedOptimizer optimizer(
      optim::SGD({w, in_one_pass}, 1.0),
      {.op = ReduceOp::sum, .backward_passes_per_step = 4, .accumulation = Accumulation::mean});
  for (int pass = 1; pass <= 4; ++pass) backward(w, pass * (rank() + 1));
  backward(in_one_pass, 8.0 * (rank() + 1));
  optimizer.step();
  expect_close(w, values({1.0 - 2.5 * mean_rank() * size()}));
  expect_close(in_one_pass, values({1.0 - 2.0 * mean_rank() * size()}));
}

TEST_F(AccumulationTest, AStepMayComeEarly) {
  ::torch::Tensor summed = parameter({1.0});
  ::torch::Tensor averaged = parameter({1.0});
  DistributedOptimizer summing(optim::SGD({summed}, 1.0), {.backward_passes_per_step = 4});
  DistributedOptimizer averaging(optim::SGD({averaged}, 1.0), {.backward_passes_per_step = 4,
                                                               .accumulation = Accumulation::mean});
  for (int pass = 1; pass <= 3; ++pass) {
    backward(summed, pass * (rank() + 1));
    backward(averaged, pass * (rank() + 1));
  }
  summing.step();
  averaging.step();
  expect_close(summed, values({1.0 - 6.0 * mean_rank()}));
  expect_close(averaged, values({1.0 - 2.0 * mean_rank()}));
  // The next step counts its passes from zero.
  averaging.zero_grad();
  for (int pass = 0; pass < 4; ++pass) backward(averaged, rank() + 1);
  averaging.step();
  expect_close(averaged, values({1.0 - 3.0 * mean_rank()}));
}

TEST_F(AccumulationTest, EachRankDividesByThePassesItMade) {
  ::torch::Tensor w = parameter({1.0});
  DistributedOptimizer optimizer(
      optim::SGD({w}, 1.0), {.backward_passes_per_step = 4, .accumulation = Accumulation::mean});
  for (int pass = 0; pass <= rank(); ++pass) backward(w, rank() + 1);  // at most 4 ranks
  optimizer.step();
  expect_close(w, values({1.0 - mean_rank()}));
}

TEST_F(AccumulationTest, FurtherPassesAreReducedToo) {
  for (const Accumulation accumulation : {Accumulation::sum, Accumulation::mean}) {
    ::torch::Tensor w = parameter({1.0});
    DistributedOptimizer optimizer(optim::SGD({w}, 1.0), {{"fc.weight", w}},
                                   {.backward_passes_per_step = 2, .accumulation = accumulation});
    const double bucket = accumulation == Accumulation::sum ? mean_rank() : mean_rank() / 2.0;
    backward(w, rank() + 1);
    expect_close(w.grad(), values({rank() + 1.0}));
    for (int pass = 2; pass <= 4; ++pass) {
      backward(w, rank() + 1);
      expect_close(w.grad(), values({pass * bucket}));
    }
    optimizer.step();
    expect_close(w, values({1.0 - 4.0 * bucket}));
  }
}

TEST_F(AccumulationTest, ZeroGradForgetsThePassesMade) {
  ::torch::Tensor w = parameter({1.0});
  DistributedOptimizer optimizer(optim::SGD({w}, 1.0), {.backward_passes_per_step = 2});
  for (int round = 0; round < 3; ++round) {
    backward(w, 1000.0);
    optimizer.zero_grad();
  }
  for (int pass = 0; pass < 2; ++pass) backward(w, rank() + 1);
  optimizer.step();
  expect_close(w, values({1.0 - 2.0 * mean_rank()}));
}

// Only one rank has passes, which reduce or not. One of two optimizers reduces the parameter that
// they share.
TEST_F(AccumulationTest, OptimizersOfOneParameterStepInAnyOrderAfterUnequalPasses) {
  for (const bool is_local : {true, false}) {
    for (const bool in_order : {true, false}) {
      ::torch::Tensor shared = parameter({1.0});
      ::torch::Tensor own = parameter({1.0});
      DistributedOptimizer owner(optim::SGD({shared}, 1.0));
      DistributedOptimizer other(optim::SGD({shared, own}, 1.0));
      for (int step = 0; step < 3; ++step) {
        owner.zero_grad();
        other.zero_grad();
        if (rank() == 0) {
          std::vector<NoSync> guards;
          if (is_local) guards.push_back(owner.no_sync());
          if (is_local) guards.push_back(other.no_sync());
          ((shared + own) * size()).sum().backward();
        }
        if (in_order) owner.step();
        other.step();
        if (!in_order) owner.step();
      }
      expect_close(shared, values({1.0 - 6.0}));
      expect_close(own, values({1.0 - 3.0}));
    }
  }
}

// As in a DCGAN: the generator's backward runs through the discriminator, which gets unused
// gradients.
TEST_F(AccumulationTest, ADiscriminatorMaySeeRealAndFakeBatches) {
  ::torch::Tensor g = parameter({1.0});
  ::torch::Tensor d = parameter({2.0});
  DistributedOptimizer generator(optim::SGD({g}, 1.0), {{"0.weight", g}});
  DistributedOptimizer discriminator(optim::SGD({d}, 1.0), {{"0.weight", d}},
                                     {.backward_passes_per_step = 2});
  double expected_g = 1.0;
  double expected_d = 2.0;
  for (int step = 0; step < 3; ++step) {
    discriminator.zero_grad();
    backward(d, rank() + 1);                           // real
    (d * g.detach() * (rank() + 1)).sum().backward();  // fake
    discriminator.step();
    expected_d -= mean_rank() * (1.0 + expected_g);
    generator.zero_grad();
    (d * g * (rank() + 1)).sum().backward();
    generator.step();
    expected_g -= mean_rank() * expected_d;
  }
  expect_close(d, values({expected_d}), 1e-9 * std::abs(expected_d));
  expect_close(g, values({expected_g}), 1e-9 * std::abs(expected_g));
}

TEST_F(AccumulationTest, PredividesTheAverage) {
  ::torch::Tensor w = parameter({1.0});
  DistributedOptimizer optimizer(optim::SGD({w}, 1.0), {.backward_passes_per_step = 2,
                                                        .accumulation = Accumulation::mean,
                                                        .gradient_predivide_factor = 8.0});
  for (int pass = 0; pass < 2; ++pass) backward(w, rank() + 1);
  optimizer.step();
  expect_close(w, values({1.0 - mean_rank()}));
}

// Parameter i gets the gradient (i + 1) * (rank + 1) in each of three steps, except `unused`.
void train_grouped(const DistributedOptimizerOptions& options, int frozen, int unused) {
  std::vector<::torch::Tensor> w;
  NamedParameters named;
  for (int i = 0; i < 5; ++i) {
    w.push_back(parameter(std::vector<double>(static_cast<std::size_t>(i + 1), 1.0)));
    named.emplace_back("w" + std::to_string(i), w.back());
  }
  DistributedOptimizer optimizer(optim::SGD(w, 1.0), named, options);
  for (int step = 0; step < 3; ++step) {
    optimizer.zero_grad();
    for (int i = 0; i < 5; ++i) {
      w[static_cast<std::size_t>(i)].set_requires_grad(i != frozen || step != 1);
    }
    for (int n = 0; n < 5; ++n) {
      const int i = rank() % 2 == 0 ? n : 4 - n;  // in different orders on different ranks
      const auto& tensor = w[static_cast<std::size_t>(i)];
      if (i != unused && tensor.requires_grad()) backward(tensor, (i + 1.0) * (rank() + 1));
    }
    optimizer.step();
  }
  for (int i = 0; i < 5; ++i) {
    const auto& tensor = w[static_cast<std::size_t>(i)];
    const double done = i == unused ? 0.0 : i == frozen ? 2.0 : 3.0;  // frozen in the second step
    expect_close(tensor, ::torch::full_like(tensor, 1.0 - done * (i + 1) * mean_rank()));
  }
}

TEST_F(GroupsTest, ListedParametersAreReducedTogether) {
  train_grouped({.groups = {{"w3", "w0"}, {"w4", "w1"}}}, -1, -1);
}

TEST_F(GroupsTest, GroupsMayHoldFrozenAndUnusedParameters) {
  train_grouped({.groups = {{"w0", "w1", "w2"}, {"w3", "w4"}}}, 1, 3);
  train_grouped({.groups = {{"w1"}}}, 1, 1);
}

TEST_F(GroupsTest, ConsecutiveParametersMakeGroups) {
  train_grouped({.num_groups = 2}, 2, 0);
  train_grouped({.num_groups = 50}, -1, -1);
}

TEST_F(GroupsTest, MembersMayDifferInTypeAndAccumulate) {
  ::torch::Tensor a = parameter({1.0, 1.0});
  ::torch::Tensor b = ::torch::ones({3}, ::torch::kFloat32).requires_grad_();
  DistributedOptimizer optimizer(
      optim::SGD({a, b}, 1.0), {{"a", a}, {"b", b}},
      {.backward_passes_per_step = 2, .accumulation = Accumulation::mean, .groups = {{"a", "b"}}});
  for (int pass = 0; pass < 2; ++pass) (a.sum() * (rank() + 1) + b.sum() * 2.0).backward();
  optimizer.step();
  expect_close(a, values({1.0, 1.0}) - mean_rank());
  expect_close(b, ::torch::full({3}, -1.0));
}

TEST_F(GroupsTest, WrongNamesAreRefused) {
  ::torch::Tensor w = parameter({1.0});
  const auto make = [&](std::vector<std::vector<std::string>> groups) {
    return error_of<InvalidArgument>([&] {
      DistributedOptimizer(optim::SGD({w}, 1.0), {{"encoder", w}, {"decoder", w}},
                           {.groups = std::move(groups)});
    });
  };
  EXPECT_THAT(make({{"encode"}}).what(), HasSubstr("'encode'"));
  EXPECT_EQ(make({{"encoder"}, {"encoder"}}).tensor(), "encoder");
  EXPECT_EQ(make({{"encoder", "decoder"}}).tensor(), "decoder");  // one tensor
  EXPECT_THAT(make({{"encoder"}, {}}).what(), HasSubstr("groups[1]"));
}

TEST_F(GroupsTest, RanksMustGroupAlike) {
  if (size() == 1) return;
  ::torch::Tensor a = parameter({1.0});
  ::torch::Tensor b = parameter({1.0});
  const auto error = error_of<Mismatch>([&] {
    DistributedOptimizer(optim::SGD({a, b}, 1.0), {{"a", a}, {"b", b}},
                         {.num_groups = rank() == 0 ? 1 : 2});
  });
  EXPECT_EQ(error.tensor(), "b");
  EXPECT_THAT(error.what(), HasSubstr("in group 0 on rank 0"));
}

std::string refusal(const DistributedOptimizerOptions& options) {
  ::torch::Tensor w = parameter({1.0});
  return error_of<InvalidArgument>([&] {
           DistributedOptimizer(optim::SGD({w}, 1.0), {{"w", w}}, options);
         })
      .what();
}

TEST_F(OptionsTest, WrongValuesAreRefused) {
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_THAT(refusal({.backward_passes_per_step = 0}), HasSubstr("backward_passes_per_step is 0"));
  EXPECT_THAT(refusal({.gradient_predivide_factor = 0.0}), HasSubstr("is 0"));
  EXPECT_THAT(refusal({.gradient_predivide_factor = -2.0}), HasSubstr("is -2"));
  EXPECT_THAT(refusal({.gradient_predivide_factor = infinity}), HasSubstr("is inf"));
  EXPECT_THAT(refusal({.op = ReduceOp::sum, .gradient_predivide_factor = 2.0}),
              HasSubstr("op is sum"));
  EXPECT_THAT(refusal({.num_groups = -1}), HasSubstr("num_groups is -1"));
  EXPECT_THAT(refusal({.groups = {{"w"}}, .num_groups = 3}), HasSubstr("num_groups is 3"));
  EXPECT_THAT(refusal({.op = ReduceOp::max}), HasSubstr("op is max"));
}

TEST_F(OptionsTest, RanksMustBeAskedForTheSame) {
  if (size() == 1) return;
  ::torch::Tensor w = parameter({1.0});
  const auto error = error_of<Mismatch>([&] {
    DistributedOptimizer(optim::SGD({w}, 1.0), {{"w", w}},
                         {.backward_passes_per_step = rank() == 0 ? 1 : 2});
  });
  EXPECT_THAT(error.what(), HasSubstr("backward_passes_per_step 2"));
}

TEST_F(OptionsTest, OnlyTheProcessSetReduces) {
  if (size() == 1) return;
  const ProcessSet pair = add_process_set({0, size() - 1});
  ::torch::Tensor w = parameter({1.0});
  DistributedOptimizer optimizer(
      optim::SGD({w}, 1.0), {{"w", w}},
      {.backward_passes_per_step = 2, .accumulation = Accumulation::mean, .process_set = pair});
  for (int step = 0; step < 2; ++step) {
    optimizer.zero_grad();
    for (int pass = 1; pass <= 2; ++pass) backward(w, pass * (rank() + 1));
    optimizer.step();
  }
  const double gradient = pair.rank() >= 0 ? (size() + 1) / 2.0 : rank() + 1.0;
  expect_close(w, values({1.0 - 3.0 * gradient}));
}

TEST_F(OptionsTest, SetsMayHaveMadeDifferentNumbersOfOptimizers) {
  if (size() < 3) return;
  const ProcessSet first = add_process_set({0, 1});
  const ProcessSet second = add_process_set({1, 2});
  ::torch::Tensor w = parameter({1.0});
  const auto train = [&](const ProcessSet& set) {
    if (set.rank() < 0) return;
    // Rank 1, which is in both sets, has stepped once more.
    DistributedOptimizer optimizer(optim::SGD({w}, 1.0), {{"w", w}},
                                   {.process_set = set, .compare = {.at_start = false}});
    w.mutable_grad().reset();
    backward(w, 1.0);
    optimizer.step();
  };
  train(first);
  train(second);
  const double steps = (first.rank() >= 0 ? 1.0 : 0.0) + (second.rank() >= 0 ? 1.0 : 0.0);
  expect_close(w, values({1.0 - steps}));
}

}  // namespace
}  // namespace kolo::internal::testing_support
