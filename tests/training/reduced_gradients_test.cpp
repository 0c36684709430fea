// SPDX-License-Identifier: Apache-2.0
// kolo::DistributedOptimizer for a custom optimizer: between the reduction and the step.
#include <cmath>
#include <limits>
#include <utility>

#include "../session/fixture.hpp"
#include "base/half.hpp"
#include "kolo/optimizer.hpp"
#include "kolo/training.hpp"

namespace kolo::internal {
namespace {

using testing::Each;
using testing::HasSubstr;

/// Two gradients of different types. The step subtracts the first from the weight.
struct TwoGradients {
  std::vector<double> a = std::vector<double>(3);
  std::vector<float> b = std::vector<float>(1);
  double weight = 0.0;

  std::vector<NamedTensor> gradients() { return {{"a", a}, {"b", b}}; }
  void step() { weight -= a.front(); }

  void fill(double value) {
    a.assign(a.size(), value);
    b.assign(b.size(), static_cast<float>(value));
  }
};

class ReducedGradientsTest : public WithSession {
 protected:
  const double mean_ = (n_ + 1) / 2.0;
  TwoGradients model_;
};

TEST_F(ReducedGradientsTest, AreLookedAtClippedAndApplied) {
  DistributedOptimizer optimizer(model_);
  for (int step = 0; step < 3; ++step) {
    model_.fill(me_ + 1.0);
    if (step == 1) optimizer.ready("b");
    ReducedGradients reduced = optimizer.reduce();
    EXPECT_THAT(model_.a, Each(mean_));
    // norm of four equal elements
    EXPECT_DOUBLE_EQ(optimizer.clip_grad_norm(reduced, 100.0), 2.0 * mean_);
    EXPECT_THAT(model_.a, Each(mean_));
    EXPECT_DOUBLE_EQ(optimizer.clip_grad_norm(reduced, 1.0), 2.0 * mean_);
    EXPECT_THAT(model_.a, Each(testing::DoubleNear(0.5, 1e-5)));
    EXPECT_THAT(model_.b, Each(testing::FloatNear(0.5F, 1e-5F)));
    const double before = model_.weight;
    optimizer.step(std::move(reduced));
    EXPECT_EQ(model_.weight, before - model_.a.front());
  }
}

// A trainer that finds an overflow goes on with its loop, and calls nothing.
TEST_F(ReducedGradientsTest, ThatAreDroppedSkipTheStepAndNeverTheReduction) {
  for (const int groups : {0, 1}) {
    DistributedOptimizer optimizer(model_, {.op = ReduceOp::sum, .num_groups = groups});
    double expected = model_.weight;
    for (int step = 0; step < 6; ++step) {
      const bool overflows = step % 3 == 1;
      model_.fill(me_ + 1.0);
      if (overflows && me_ == last_) model_.b[0] = std::numeric_limits<float>::infinity();
      if (step % 2 == 0) optimizer.ready("a");
      ReducedGradients reduced = optimizer.reduce();
      const double norm = optimizer.clip_grad_norm(reduced, 1e9);
      EXPECT_EQ(std::isfinite(norm), !overflows);
      if (!std::isfinite(norm)) continue;
      optimizer.step(std::move(reduced));
      expected -= mean_ * n_;
      EXPECT_EQ(model_.weight, expected);
    }
  }
}

/// One gradient of a scaled loss, in the type that overflows; the step divides by the scale.
struct ScaledGradient {
  std::vector<F16> gradient = std::vector<F16>(2);
  LossScale scale{{.initial = 0x1p15, .growth_interval = 4}};
  double weight = 0.0;

  std::vector<NamedTensor> gradients() {
    return {{"g", TensorView(gradient.data(), Shape{2}, DType::f16)}};
  }
  void step() { weight -= static_cast<double>(to_float(gradient[0])) / scale.value(); }
  void backward(double value) {
    gradient.assign(2, to_half<F16>(static_cast<float>(value * scale.value())));
  }
};

// A gradient of 4 on the last rank overflows f16 at first: 2^15 * 4 is above 65504. All ranks find
// that, skip, and go on with half the scale.
TEST_F(ReducedGradientsTest, OfAScaledLossOverflowOnAllRanks) {
  ScaledGradient model;
  DistributedOptimizer optimizer(model, {.op = ReduceOp::sum});
  int skipped = 0;
  double expected = 0.0;
  for (int step = 0; step < 9; ++step) {
    model.backward(me_ == last_ ? 4.0 : 0.0);
    ReducedGradients reduced = optimizer.reduce();
    const double norm = optimizer.clip_grad_norm(reduced, 100.0 * model.scale.value());
    if (std::isfinite(norm)) {
      optimizer.step(std::move(reduced));
      expected -= 4.0;
    } else {
      ++skipped;
    }
    model.scale.update(!std::isfinite(norm));
    EXPECT_EQ(model.weight, expected);
  }
  // 2^15 and 2^14 overflow, 2^13 does not; after four steps 2^14 overflows again.
  EXPECT_EQ(skipped, 3);
  EXPECT_EQ(model.scale.value(), 0x1p13);
}

TEST_F(ReducedGradientsTest, OfAnEarlierReductionAreRefused) {
  DistributedOptimizer optimizer(model_, {.backward_passes_per_step = 2});
  const auto refuse = [&](ReducedGradients gradients) {
    EXPECT_THAT(
        thrown_by<InvalidArgument>([&] { optimizer.clip_grad_norm(gradients, 1.0); }).what(),
        HasSubstr("earlier reduce()"));
    EXPECT_THROW(optimizer.step(std::move(gradients)), InvalidArgument);
  };
  model_.fill(me_ + 1.0);
  ReducedGradients first = optimizer.reduce();
  ReducedGradients second = optimizer.reduce();
  refuse(std::move(first));
  optimizer.end_pass();
  refuse(std::move(second));
  ReducedGradients third = optimizer.reduce();
  optimizer.end_pass();
  model_.fill(me_ + 1.0);
  optimizer.ready("a");
  refuse(std::move(third));
  optimizer.step();
  EXPECT_EQ(model_.weight, -mean_);
}

TEST_F(ReducedGradientsTest, ADiscardedStepIsDroppedOnAllRanks) {
  DistributedOptimizer optimizer(model_, {.backward_passes_per_step = 2});
  for (int round = 0; round < 3; ++round) {
    model_.fill(1000.0);
    optimizer.end_pass();
    if (me_ % 2 == 0) optimizer.ready("a");
    optimizer.discard();
    const double before = model_.weight;
    model_.fill(me_ + 1.0);
    optimizer.end_pass();
    optimizer.step();
    EXPECT_EQ(model_.weight, before - mean_);
  }
}

TEST_F(ReducedGradientsTest, AStepThatOneRankSkipsAloneIsAMismatch) {
  if (n_ == 1) GTEST_SKIP() << "one rank cannot disagree";
  DistributedOptimizer optimizer(model_);
  ReducedGradients reduced = optimizer.reduce();
  if (me_ != last_) optimizer.step(std::move(reduced));
  EXPECT_THROW(static_cast<void>(optimizer.reduce()), Mismatch);
}

TEST_F(ReducedGradientsTest, WithoutANormAreRefused) {
  struct Counts {
    std::vector<std::int32_t> counts = std::vector<std::int32_t>(2);
    std::vector<NamedTensor> gradients() { return {{"counts", counts}}; }
    void step() {}
  } model;
  DistributedOptimizer optimizer(model, {.op = ReduceOp::sum});
  ReducedGradients reduced = optimizer.reduce();
  const auto error = thrown_by<InvalidArgument>([&] { optimizer.clip_grad_norm(reduced, 1.0); });
  EXPECT_EQ(error.tensor(), "counts");
  DistributedOptimizer floats(model_);
  ReducedGradients positive = floats.reduce();
  EXPECT_THROW(floats.clip_grad_norm(positive, 0.0), InvalidArgument);
}

}  // namespace
}  // namespace kolo::internal
