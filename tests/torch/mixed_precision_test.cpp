// SPDX-License-Identifier: Apache-2.0
// Autocast, and scaled losses whose gradients overflow on one rank.
#include "support.hpp"

#include <limits>
#include <stdexcept>

namespace kolo::internal::testing_support {
namespace {

namespace nn = ::torch::nn;
namespace optim = ::torch::optim;
using testing::HasSubstr;
using ::torch::Tensor;

constexpr auto f32 = ::torch::kFloat32;
constexpr auto bf16 = ::torch::kBFloat16;

using AutocastTest = TorchTest;

::torch::ScalarType dtype_of_product() {
  return ::torch::matmul(::torch::ones({2, 2}), ::torch::ones({2, 2})).scalar_type();
}

TEST_F(AutocastTest, HoldsWhileTheGuardLivesAndNests) {
  {
    const Autocast outer(::torch::kCPU, bf16);
    EXPECT_EQ(dtype_of_product(), bf16);
    {
      const Autocast inner(::torch::kCPU, bf16, /*enabled=*/false);
      EXPECT_EQ(dtype_of_product(), f32);
      const Autocast of_gpus(::torch::kCUDA, ::torch::kHalf);
      EXPECT_EQ(dtype_of_product(), f32);
    }
    EXPECT_EQ(dtype_of_product(), bf16);
  }
  EXPECT_EQ(dtype_of_product(), f32);
}

TEST_F(AutocastTest, EndsByAnException) {
  const auto fail = [] {
    const Autocast autocast(::torch::kCPU, bf16);
    throw std::runtime_error("in forward");
  };
  EXPECT_THROW(fail(), std::runtime_error);
  EXPECT_EQ(dtype_of_product(), f32);
  error_of<InvalidArgument>([] { const Autocast autocast(::torch::kCPU, ::torch::kInt); });
  error_of<InvalidArgument>(
      [] { const Autocast autocast(::torch::Device(::torch::kMeta), ::torch::kHalf); });
  EXPECT_EQ(dtype_of_product(), f32);
}

// Within a guard a converted parameter is used again, by operations that take it itself: LibTorch
// 1.13's module takes a view. The next guard must not see old parameters.
TEST_F(AutocastTest, ConvertsParametersAfreshInEachOutermostGuard) {
  nn::Linear model(nn::LinearOptions(2, 1).bias(false));
  const auto forward = [&] {
    const Autocast outer(::torch::kCPU, bf16);
    const Autocast inner(::torch::kCPU, bf16);
    return ::torch::linear(::torch::ones({1, 2}), model->weight).item<double>();
  };
  for (const double weight : {1.0, 2.0, 4.0}) {
    {
      const ::torch::NoGradGuard no_grad;
      model->weight.fill_(weight);
    }
    EXPECT_EQ(forward(), 2.0 * weight);
  }
}

TEST_F(AutocastTest, GradientsAreReducedInF32) {
  nn::Sequential model(nn::Linear(3, 4), SyncBatchNorm(4), nn::ReLU(), nn::Linear(4, 1));
  broadcast_parameters(*model, 0);
  DistributedOptimizer optimizer(optim::SGD(model->parameters(), 0.05), model->named_parameters());
  ::torch::manual_seed(7 + static_cast<std::uint64_t>(rank()));
  const Tensor x = ::torch::randn({16, 3});
  double first = 0.0;
  double last = 0.0;
  for (int step = 0; step < 40; ++step) {
    optimizer.zero_grad();
    Tensor loss;
    {
      const Autocast autocast(::torch::kCPU, bf16);
      const Tensor y = model->forward(x);
      EXPECT_EQ(y.scalar_type(), bf16);
      loss = ::torch::mse_loss(y.to(f32), x.sum(1, /*keepdim=*/true));
    }
    loss.backward();
    for (const Tensor& parameter : model->parameters())
      ASSERT_EQ(parameter.grad().scalar_type(), f32);
    optimizer.step();
    last = average(loss.item<double>());
    if (step == 0) first = last;
  }
  EXPECT_LT(last, first / 2.0);
  expect_same_bits_on_all_ranks(model->parameters());
}

// A parameter w with the loss w * factor, so that the gradient is the factor.
struct Weight {
  Tensor w = ::torch::zeros({2}).set_requires_grad(true);
  [[nodiscard]] Tensor loss(double factor) const { return (w * factor).sum(); }
  [[nodiscard]] double value() const { return w[0].item<double>(); }
};

constexpr double huge = 0x1p100;  // times the scale it is infinite in f32

class GradScalerTest : public TorchTest {
 protected:
  [[nodiscard]] static double huge_on_last(double otherwise) {
    return rank() == size() - 1 ? huge : otherwise;
  }

  Weight model_;
  GradScaler scaler_{{.initial = 0x1p40, .growth_interval = 3}};
};

TEST_F(GradScalerTest, GradientsAreThoseOfTheLoss) {
  DistributedOptimizer optimizer(optim::SGD({model_.w}, 0.5));
  const Tensor loss = model_.loss(rank() + 1.0);
  scaler_.scale(loss).backward();
  expect_close(model_.w.grad(), ::torch::full({2}, mean_rank() * 0x1p40), 0.0);
  scaler_.unscale(optimizer);
  expect_close(model_.w.grad(), ::torch::full({2}, mean_rank()), 0.0);
  EXPECT_TRUE(scaler_.step(optimizer));
  EXPECT_EQ(model_.value(), -0.5 * mean_rank());
  scaler_.update();
  EXPECT_EQ(scaler_.loss_scale(), 0x1p40);
  // A loss of two bytes does not overflow by the scale.
  EXPECT_EQ(scaler_.scale(::torch::ones({}, ::torch::kHalf)).item<double>(), 0x1p40);
}

TEST_F(GradScalerTest, AnOverflowOnOneRankSkipsTheStepOnAll) {
  for (const Compression wire : {Compression::none, Compression::bf16}) {
    Weight model;
    GradScaler scaler({.initial = 0x1p40, .growth_interval = 3});
    DistributedOptimizer optimizer(optim::SGD({model.w}, 1.0), {.compression = wire});
    double expected = 0.0;
    for (int step = 0; step < 6; ++step) {
      optimizer.zero_grad();
      const bool overflows = step == 1 || step == 2;
      scaler.scale(model.loss(overflows ? huge_on_last(1.0) : 1.0)).backward();
      EXPECT_EQ(scaler.step(optimizer), !overflows);
      scaler.update();
      if (!overflows) expected -= 1.0;
      EXPECT_EQ(model.value(), expected);
    }
    EXPECT_EQ(scaler.loss_scale(), 0x1p39);  // halved twice, doubled after three good steps
  }
}

TEST_F(GradScalerTest, ANaNAndALargeNumberThatIsFinite) {
  DistributedOptimizer optimizer(optim::SGD({model_.w}, 0.0));
  GradScaler scaler({.initial = 1.0});
  const double largest = std::numeric_limits<float>::max();
  scaler.scale(model_.loss(largest)).backward();  // the sum of squares overflows, no element does
  if (size() == 1) {
    EXPECT_TRUE(scaler.step(optimizer));
    scaler.update();
  }
  optimizer.zero_grad();
  GradScaler fresh;
  fresh.scale(model_.loss(rank() == 0 ? std::numeric_limits<double>::quiet_NaN() : 1.0)).backward();
  EXPECT_FALSE(fresh.step(optimizer));
}

TEST_F(GradScalerTest, ClipsWhatIsUnscaled) {
  DistributedOptimizer optimizer(optim::SGD({model_.w}, 1.0));
  for (const bool overflows : {false, true, false}) {
    optimizer.zero_grad();
    scaler_.scale(model_.loss(overflows ? huge_on_last(3.0) : 3.0)).backward();
    scaler_.unscale(optimizer);
    const double norm = clip_grad_norm(optimizer, 1.0);
    EXPECT_EQ(std::isfinite(norm), !overflows);
    EXPECT_NEAR(overflows ? 3.0 * std::sqrt(2.0) : norm, 3.0 * std::sqrt(2.0), 1e-6);
    EXPECT_EQ(scaler_.step(optimizer), !overflows);
    scaler_.update();
  }
  EXPECT_NEAR(model_.value(), -2.0 / std::sqrt(2.0), 1e-5);
}

TEST_F(GradScalerTest, OfTwoOptimizersOnlyTheOneThatOverflowedSkips) {
  Weight other;
  DistributedOptimizer optimizer(optim::SGD({model_.w}, 1.0));
  DistributedOptimizer second(optim::SGD({other.w}, 1.0));
  for (int step = 0; step < 3; ++step) {
    const bool overflows = step == 1;
    optimizer.zero_grad();
    second.zero_grad();
    scaler_.scale(model_.loss(overflows ? huge_on_last(1.0) : 1.0)).backward();
    EXPECT_EQ(scaler_.step(optimizer), !overflows);
    scaler_.scale(other.loss(1.0)).backward();
    EXPECT_TRUE(scaler_.step(second));
    scaler_.update();
  }
  EXPECT_EQ(model_.value(), -2.0);
  EXPECT_EQ(other.value(), -3.0);
  EXPECT_EQ(scaler_.loss_scale(), 0x1p39);
}

TEST_F(GradScalerTest, PassesAccumulateWithAndWithoutReduction) {
  DistributedOptimizer counted(optim::SGD({model_.w}, 1.0), {.backward_passes_per_step = 2});
  Weight other;
  DistributedOptimizer guarded(optim::SGD({other.w}, 1.0));
  double expected = 0.0;
  for (int step = 0; step < 4; ++step) {
    // The pass that stays on this rank overflows.
    const bool overflows = step == 2;
    const double local = overflows ? huge_on_last(1.0) : 1.0;
    counted.zero_grad();
    guarded.zero_grad();
    {
      const auto on_this_rank = guarded.no_sync();
      scaler_.scale(other.loss(local)).backward();
    }
    scaler_.scale(model_.loss(local)).backward();
    if (step != 1) {  // in step 1 unscale() reduces what is left
      scaler_.scale(model_.loss(2.0)).backward();
      scaler_.scale(other.loss(2.0)).backward();
    }
    EXPECT_EQ(scaler_.step(counted), !overflows);
    EXPECT_EQ(scaler_.step(guarded), !overflows);
    scaler_.update();
    if (!overflows) expected -= step == 1 ? 1.0 : 3.0;
    EXPECT_EQ(model_.value(), expected);
    EXPECT_EQ(other.value(), expected);
  }
}

TEST_F(GradScalerTest, PlainOptimizersOfAModuleThatIsReduced) {
  nn::Linear model(nn::LinearOptions(2, 1).bias(false));
  broadcast_parameters(*model, 0);
  DistributedGradients gradients(*model);
  optim::Adam optimizer(model->parameters(), 0.1);
  for (int step = 0; step < 4; ++step) {
    optimizer.zero_grad();
    const bool overflows = step == 1;
    const Tensor x = ::torch::full({1, 2}, overflows ? huge_on_last(1.0) : rank() + 1.0);
    scaler_.scale(model->forward(x).sum()).backward();
    EXPECT_EQ(scaler_.step(optimizer), !overflows);
    scaler_.update();
    expect_same_bits_on_all_ranks(model->parameters());
  }
}

TEST_F(GradScalerTest, SparseGradients) {
  nn::Embedding embedding(nn::EmbeddingOptions(10, 2).sparse(true));
  broadcast_parameters(*embedding, 0);
  DistributedOptimizer optimizer(optim::SGD(embedding->parameters(), 1.0),
                                 embedding->named_parameters());
  const Tensor before = embedding->weight.detach().clone();
  for (const bool overflows : {true, false}) {
    optimizer.zero_grad();
    const Tensor found = embedding->forward(::torch::tensor({3, rank()}));
    scaler_.scale(found.sum() * (overflows ? huge_on_last(1.0) : 1.0)).backward();
    EXPECT_EQ(scaler_.step(optimizer), !overflows);
    scaler_.update();
    if (overflows) expect_close(embedding->weight, before, 0.0);
  }
  const double of_row_3 = size() > 3 ? 1.0 + 1.0 / size() : 1.0;
  expect_close(embedding->weight[3], before[3] - of_row_3, 1e-5);
}

// Ranks with fewer batches join; the scale of the rank that made all steps is the one to keep.
TEST_F(GradScalerTest, AfterAJoinTheScaleIsThatOfTheLastRank) {
  DistributedOptimizer optimizer(optim::SGD({model_.w}, 1.0));
  for (int step = 0; step <= rank(); ++step) {
    optimizer.zero_grad();
    const bool overflows = step + 1 == size();  // in the last step, of the last rank alone
    scaler_.scale(model_.loss(overflows ? huge : 1.0)).backward();
    EXPECT_EQ(scaler_.step(optimizer), !overflows);
    scaler_.update();
  }
  const int last = join();
  std::string state = scaler_.state();
  broadcast(state, last);
  scaler_.load_state(state);
  broadcast_parameters(ModuleTensors({{"w", model_.w}}), last);
  EXPECT_EQ(scaler_.loss_scale(), size() == 4 ? 0x1p40 : 0x1p39);  // doubled, then halved
  optimizer.zero_grad();
  scaler_.scale(model_.loss(1.0)).backward();
  EXPECT_TRUE(scaler_.step(optimizer));
  expect_same_bits_on_all_ranks({model_.w});
}

TEST_F(GradScalerTest, ARankOutsideTheProcessSetDecidesAlone) {
  const ProcessSet set = add_process_set({0});
  DistributedOptimizer optimizer(optim::SGD({model_.w}, 1.0), {.process_set = set});
  const bool overflows = rank() != 0;
  scaler_.scale(model_.loss(overflows ? huge : 1.0)).backward();
  EXPECT_EQ(scaler_.step(optimizer), !overflows);
}

TEST_F(GradScalerTest, GoesOnFromACheckpoint) {
  GradScaler resumed({.initial = 2.0, .growth_interval = 3});
  DistributedOptimizer optimizer(optim::SGD({model_.w}, 1.0));
  const auto train = [&](GradScaler& scaler, double factor) {
    optimizer.zero_grad();
    scaler.scale(model_.loss(factor)).backward();
    scaler.step(optimizer);
    scaler.update();
  };
  train(scaler_, huge_on_last(1.0));
  train(scaler_, 1.0);
  train(scaler_, 1.0);
  resumed.load_state(scaler_.state());
  EXPECT_EQ(resumed.loss_scale(), 0x1p39);
  train(resumed, 1.0);
  EXPECT_EQ(resumed.loss_scale(), 0x1p40);
}

TEST_F(GradScalerTest, SwitchedOffItChangesNothing) {
  GradScaler scaler({}, /*enabled=*/false);
  DistributedOptimizer optimizer(optim::SGD({model_.w}, 1.0));
  EXPECT_EQ(scaler.loss_scale(), 1.0);
  scaler.scale(model_.loss(huge)).backward();
  scaler.unscale(optimizer);
  EXPECT_TRUE(scaler.step(optimizer));
  scaler.update();
  EXPECT_NEAR(model_.value(), -huge, huge * 1e-6);
}

TEST_F(GradScalerTest, RefusesCallsInAnotherOrder) {
  DistributedOptimizer optimizer(optim::SGD({model_.w}, 1.0));
  const auto refusal = [&](const auto& call) {
    return std::string(error_of<InvalidArgument>(call).what());
  };
  EXPECT_THAT(refusal([&] { scaler_.update(); }), HasSubstr("without a step"));
  scaler_.scale(model_.loss(1.0)).backward();
  scaler_.unscale(optimizer);
  EXPECT_THAT(refusal([&] { scaler_.unscale(optimizer); }), HasSubstr("unscale()"));
  EXPECT_TRUE(scaler_.step(optimizer));
  EXPECT_THAT(refusal([&] { scaler_.step(optimizer); }), HasSubstr("needs update()"));
  scaler_.update();
  EXPECT_EQ(model_.value(), -1.0);

  Tensor half = ::torch::zeros({2}, ::torch::kHalf).set_requires_grad(true);
  optim::SGD plain({half}, 1.0);
  half.mutable_grad() = ::torch::ones({2}, ::torch::kHalf);
  EXPECT_THAT(refusal([&] { scaler_.unscale(plain); }), HasSubstr("kolo::Autocast"));
}

}  // namespace
}  // namespace kolo::internal::testing_support
