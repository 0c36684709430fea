// SPDX-License-Identifier: Apache-2.0
// The outer step of local SGD and DiLoCo.
#include "support.hpp"

#include "outer.hpp"

namespace kolo::internal::testing_support {
namespace {

using local_sgd::OuterOptimizer;
using OuterTest = TorchTest;

void move(::torch::Tensor& parameter, double distance) {
  const ::torch::NoGradGuard no_grad;
  parameter.add_(distance);
}

TEST_F(OuterTest, WithRateOneIsTheAverageOfTheParameters) {
  ::torch::Tensor a = parameter({1.0, 2.0});
  ::torch::Tensor b = parameter({3.0});
  OuterOptimizer outer({a, b}, 1.0, 0.0);
  EXPECT_EQ(outer.bytes(), 24);
  double moved = 0.0;
  for (int step = 0; step < 3; ++step) {
    move(a, rank() + 1.0);
    move(b, -2.0 * rank());
    outer.step();
    moved += mean_rank();
    expect_close(a, values({1.0 + moved, 2.0 + moved}));
    expect_close(b, values({3.0 - 2.0 * (step + 1) * (mean_rank() - 1.0)}));
    expect_same_bits_on_all_ranks({a, b});
  }
}

// The first step moves by rate * (1 + momentum) times the average distance, the second by
// rate * (1 + momentum * (1 + momentum)) times it.
TEST_F(OuterTest, HasNesterovMomentum) {
  ::torch::Tensor a = parameter({0.0});
  OuterOptimizer outer({a}, 0.5, 0.75);
  move(a, rank() + 1.0);
  outer.step();
  const double first = 0.5 * 1.75 * mean_rank();
  expect_close(a, values({first}));
  move(a, rank() + 1.0);
  outer.step();
  expect_close(a, values({first + 0.5 * (1.0 + 0.75 * 1.75) * mean_rank()}));
  expect_same_bits_on_all_ranks({a});
}

TEST_F(OuterTest, ContinuesFromItsState) {
  ::torch::Tensor a = parameter({1.0, 2.0});
  OuterOptimizer outer({a}, 0.5, 0.75);
  const auto round = [](::torch::Tensor& parameter, OuterOptimizer& optimizer) {
    move(parameter, rank() + 1.0);
    optimizer.step();
  };
  round(a, outer);
  ::torch::Tensor b = a.detach().clone();
  OuterOptimizer other({b}, 0.5, 0.75);
  other.load_state(outer.state());
  round(a, outer);
  round(b, other);
  EXPECT_TRUE(same_bits(a, b));
  EXPECT_THROW(other.load_state("rubbish"), c10::Error);
}

}  // namespace
}  // namespace kolo::internal::testing_support
