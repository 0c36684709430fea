// SPDX-License-Identifier: Apache-2.0
// Clipping of averaged gradients.
#include "support.hpp"

#include <cmath>
#include <limits>

namespace kolo::internal::testing_support {
namespace {

namespace nn = ::torch::nn;
namespace optim = ::torch::optim;
using testing::HasSubstr;

constexpr double infinity = std::numeric_limits<double>::infinity();

// Two parameters with the averaged gradients (3 m, 0) and (4 m), where m is the mean of 1 .. size.
struct Pair {
  explicit Pair(const DistributedOptimizerOptions& options = {})
      : optimizer(optim::SGD({a, b}, optim::SGDOptions(1.0)), {{"a", a}, {"b", b}}, options) {}

  void backward() {
    optimizer.zero_grad();
    const double scale = rank() + 1.0;
    ((a * values({3.0, 0.0})).sum() * scale + (b * 4.0).sum() * scale).backward();
  }

  ::torch::Tensor a = parameter({0.0, 0.0});
  ::torch::Tensor b = parameter({0.0});
  DistributedOptimizer<optim::SGD> optimizer;
};

class ClipTest : public TorchTest {
 protected:
  const double mean_ = mean_rank();
};

TEST_F(ClipTest, WaitsForTheReductionsAndScalesToTheNorm) {
  Pair pair;
  pair.backward();
  EXPECT_DOUBLE_EQ(clip_grad_norm(pair.optimizer, 0.5), 5.0 * mean_);
  expect_close(pair.a.grad(), values({0.3, 0.0}), 1e-6);
  expect_close(pair.b.grad(), values({0.4}), 1e-6);
  pair.optimizer.step();  // does not reduce again
  expect_close(pair.a, values({-0.3, 0.0}), 1e-6);
  expect_same_bits_on_all_ranks({pair.a, pair.b});
}

TEST_F(ClipTest, SmallerGradientsStayAsTheyAre) {
  Pair pair;
  pair.backward();
  EXPECT_DOUBLE_EQ(clip_grad_norm(pair.optimizer, 100.0), 5.0 * mean_);
  expect_close(pair.a.grad(), values({3.0 * mean_, 0.0}));
  expect_close(pair.b.grad(), values({4.0 * mean_}));
}

TEST_F(ClipTest, TheOptimizerMayBeKnownByItsBaseClass) {
  Pair pair;
  pair.backward();
  optim::Optimizer& base = pair.optimizer;
  EXPECT_DOUBLE_EQ(clip_grad_norm(base, 0.5), 5.0 * mean_);
  expect_close(pair.a.grad(), values({0.3, 0.0}), 1e-6);
}

TEST_F(ClipTest, AnOptimizerBesideDistributedGradients) {
  const ::torch::Tensor a = parameter({0.0, 0.0});
  const DistributedGradients gradients({{"a", a}});
  optim::SGD optimizer({a}, 1.0);
  (a * values({3.0, 4.0})).sum().mul(rank() + 1).backward();
  EXPECT_DOUBLE_EQ(clip_grad_norm(optimizer, 0.5), 5.0 * mean_);
  expect_close(a.grad(), values({0.3, 0.4}), 1e-6);
  EXPECT_THROW(clip_grad_norm(optimizer, 0.0), InvalidArgument);
}

// Its elements are one number in memory, which cannot be multiplied in place.
TEST_F(ClipTest, AnExpandedGradientOfTheProgram) {
  Pair pair;
  pair.optimizer.zero_grad();
  pair.a.mutable_grad() = values({3.0}).expand({2});
  (pair.b * (rank() + 1.0)).sum().backward();
  const double norm = std::sqrt(2.0 * 9.0 + mean_ * mean_);
  EXPECT_DOUBLE_EQ(clip_grad_norm(pair.optimizer, 0.5), norm);
  expect_close(pair.a.grad(), values({1.5 / norm, 1.5 / norm}), 1e-6);
  expect_close(pair.b.grad(), values({0.5 * mean_ / norm}), 1e-6);
  pair.a.mutable_grad() = values({3.0}).expand({2});
  GradScaler scaler({.initial = 4.0});
  scaler.unscale(pair.optimizer);
  expect_close(pair.a.grad(), values({0.75, 0.75}));
}

// LibTorch lists a row as often as it was looked up, so the optimizer must add them before.
TEST_F(ClipTest, RepeatedRowsOfAPlainOptimizer) {
  nn::Embedding embedding(nn::EmbeddingOptions(4, 2).sparse(true));
  optim::SGD optimizer(embedding->parameters(), 1.0);
  const auto row = [](std::int64_t index) { return ::torch::full({1}, index, ::torch::kLong); };
  embedding->forward(::torch::cat({row(1), row(1), row(1), row(2)})).sum().backward();
  EXPECT_NEAR(clip_grad_norm(optimizer, 1.0), std::sqrt(20.0), 1e-6);
  const ::torch::Tensor clipped = embedding->weight.grad().to_dense();
  EXPECT_NEAR(clipped.norm().item<double>(), 1.0, 1e-6);
}

TEST_F(ClipTest, OtherNorms) {
  Pair pair;
  pair.backward();
  EXPECT_DOUBLE_EQ(clip_grad_norm(pair.optimizer, 100.0, {.norm_type = 1.0}), 7.0 * mean_);
  EXPECT_DOUBLE_EQ(clip_grad_norm(pair.optimizer, 1.0, {.norm_type = infinity}), 4.0 * mean_);
  expect_close(pair.b.grad(), values({1.0}), 1e-6);
}

TEST_F(ClipTest, TheNormIsTheSameBitsOnAllRanksAndThatOfLibTorch) {
  ::torch::manual_seed(5 + static_cast<unsigned>(rank()));
  nn::Sequential model(nn::Linear(30, 40), nn::Linear(40, 7));
  broadcast_parameters(*model, 0);
  DistributedOptimizer optimizer(optim::SGD(model->parameters(), 0.1), model->named_parameters());
  model->forward(::torch::randn({16, 30})).square().sum().backward();
  optimizer.synchronize();
  double expected = 0.0;
  for (const auto& parameter : model->parameters()) {
    expected += parameter.grad().to(::torch::kFloat64).square().sum().item<double>();
  }
  const double norm = clip_grad_norm(optimizer, 0.25);
  EXPECT_NEAR(norm, std::sqrt(expected), 1e-9 * norm);
  expect_same_bits_on_all_ranks({values({norm})});
  std::vector<::torch::Tensor> gradients;
  for (const auto& parameter : model->parameters()) gradients.push_back(parameter.grad());
  expect_same_bits_on_all_ranks(gradients);
  EXPECT_NEAR(flat(gradients).to(::torch::kFloat64).norm().item<double>(), 0.25, 1e-5);
}

TEST_F(ClipTest, SparseGradients) {
  ::torch::manual_seed(1);
  nn::Embedding embedding(nn::EmbeddingOptions(10, 2).sparse(true));
  DistributedOptimizer optimizer(optim::SGD(embedding->parameters(), 0.1),
                                 embedding->named_parameters());
  // Every rank looks up row 3: the average is a row of ones with a norm of the root of 2.
  embedding->forward(::torch::tensor({3})).sum().backward();
  EXPECT_NEAR(clip_grad_norm(optimizer, 1.0), std::sqrt(2.0), 1e-6);
  EXPECT_NEAR(embedding->weight.grad().to_dense().norm().item<double>(), 1.0, 1e-5);
}

TEST_F(ClipTest, WhatIsNoNumberIsRefusedOnAllRanksIfAsked) {
  Pair pair;
  pair.backward();
  const double poison = rank() == 0 ? infinity : 1.0;
  pair.optimizer.zero_grad();
  (pair.a * poison).sum().backward();
  const auto error =
      error_of<Error>([&] { clip_grad_norm(pair.optimizer, 1.0, {.refuse_nonfinite = true}); });
  EXPECT_THAT(error.what(), HasSubstr("inf"));
  EXPECT_EQ(clip_grad_norm(pair.optimizer, 1.0), infinity);
}

TEST_F(ClipTest, InAProcessSetAndOutside) {
  const ProcessSet set = add_process_set({0});
  Pair pair({.process_set = set});
  pair.backward();
  // Outside the set, each rank has its own gradients.
  EXPECT_DOUBLE_EQ(clip_grad_norm(pair.optimizer, 1e9), 5.0 * (rank() + 1.0));
}

TEST_F(ClipTest, RepeatedRowsCountTogetherOutsideAProcessSet) {
  const ProcessSet set = add_process_set({0});
  nn::Embedding table(nn::EmbeddingOptions(3, 1).sparse(true));
  DistributedOptimizer optimizer(optim::SGD(table->parameters(), 1.0), table->named_parameters(),
                                 {.process_set = set});
  table->forward(::torch::tensor({1, 1, 1, 1})).sum().backward();
  EXPECT_DOUBLE_EQ(clip_grad_norm(optimizer, 1e9), 4.0);
}

// Their parameter is divided by the scale once, before any of them clips it.
TEST_F(ClipTest, SharedParametersAreUnscaledOnce) {
  ::torch::manual_seed(1);
  ::torch::Tensor shared = parameter({0.0});
  ::torch::Tensor own = parameter({0.0});
  nn::Embedding table(nn::EmbeddingOptions(3, 1).sparse(true));
  DistributedOptimizer first(optim::SGD({shared, table->weight}, 1.0));
  DistributedOptimizer second(optim::SGD({shared, own, table->weight}, 1.0));
  GradScaler scaler({.initial = 1024.0});
  const auto loss = [&](double factor) {
    return scaler.scale((shared + own).sum() * factor +
                        table->forward(::torch::tensor({1})).sum() * (rank() + 1));
  };
  const auto expect_mean = [&] {
    expect_close(shared.grad(), values({mean_}));
    EXPECT_EQ(table->weight.grad().to_dense()[1].item<double>(), mean_);
  };
  for (const bool overflows : {false, true, false}) {
    first.zero_grad();
    second.zero_grad();
    loss(overflows && rank() == size() - 1 ? infinity : rank() + 1.0).backward();
    scaler.unscale(first);
    scaler.unscale(second);
    if (!overflows) expect_mean();
    clip_grad_norm(first, 1.0);
    EXPECT_EQ(scaler.step(first), !overflows);
    EXPECT_EQ(scaler.step(second), !overflows);
    scaler.update();
  }
  // In the same memory for each optimizer in turn.
  const auto in_turn = [&](auto& optimizer) {
    if (shared.grad().defined()) shared.mutable_grad().zero_();
    table->weight.mutable_grad().reset();
    loss(rank() + 1.0).backward();
    scaler.unscale(optimizer);
    expect_mean();
    EXPECT_TRUE(scaler.step(optimizer));
  };
  in_turn(first);
  in_turn(second);
}

TEST_F(ClipTest, RefusesWhatIsNotPositive) {
  Pair pair;
  pair.backward();
  error_of<InvalidArgument>([&] { clip_grad_norm(pair.optimizer, 0.0); });
  error_of<InvalidArgument>([&] { clip_grad_norm(pair.optimizer, 1.0, {.norm_type = -1.0}); });
  EXPECT_DOUBLE_EQ(clip_grad_norm(pair.optimizer, 100.0), 5.0 * mean_);
}

}  // namespace
}  // namespace kolo::internal::testing_support
