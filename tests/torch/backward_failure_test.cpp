// SPDX-License-Identifier: Apache-2.0
// Backward passes that fail, or that only some ranks run.
#include "../support/halves_hook.hpp"
#include "support.hpp"

#include <functional>
#include <stdexcept>

namespace kolo::internal::testing_support {
namespace {

namespace optim = ::torch::optim;
using testing::HasSubstr;
using ::torch::Tensor;

const std::vector<DistributedOptimizerOptions>& ways_to_reduce() {
  static const std::vector<DistributedOptimizerOptions> ways{
      {},
      {.op = ReduceOp::sum},
      {.num_groups = 2},
      {.compression = Compression::fp16},
      {.hook = std::make_shared<HalvesHook>()},
      {.num_groups = 2, .hook = std::make_shared<HalvesHook>()}};
  return ways;
}

class BackwardFailureTest : public TorchTest {
 protected:
  const int last_ = size() - 1;
  Tensor early_ = parameter({1.0, 1.0});  // its gradient is ready first
  Tensor middle_ = parameter({1.0});
  Tensor late_ = parameter({1.0});
  Tensor frozen_ = values({1.0});

  DistributedOptimizer<optim::SGD> make(const DistributedOptimizerOptions& options = {}) {
    return {optim::SGD({frozen_, early_, middle_, late_}, 1.0),
            {{"frozen", frozen_}, {"early", early_}, {"middle", middle_}, {"late", late_}},
            options};
  }

  void run(bool throws) {
    Tensor x = late_ * (rank() + 1.0);
    x = x * middle_;
    if (throws)
      x.register_hook([](const Tensor&) -> Tensor { throw std::runtime_error("bad hook"); });
    (early_.sum() * (rank() + 1.0) * x).sum().backward();
  }

  void expect_reduced(double factor) {
    expect_close(late_.grad(), values({2.0 * factor}), 1e-2);
    expect_close(early_.grad(), values({factor, factor}), 1e-2);
  }
};

TEST_F(BackwardFailureTest, AnExceptionOnOneRankIsThrownOnAll) {
  const double squares = (size() + 1.0) * (2.0 * size() + 1.0) / 6.0;  // the mean of (rank + 1)^2
  for (const DistributedOptimizerOptions& options : ways_to_reduce()) {
    auto optimizer = make(options);
    const double bucket = options.op == ReduceOp::sum ? squares * size() : squares;
    for (const bool has_reduced : {false, true}) {
      optimizer.zero_grad();
      if (has_reduced) run(false);
      if (rank() == last_) {
        EXPECT_EQ(error_of<std::runtime_error>([&] { run(true); }).what(), std::string("bad hook"));
      } else {
        const auto error = error_of<BackwardFailed>([&] { run(false); });
        EXPECT_EQ(error.ranks(), std::vector<int>{last_});
      }
      barrier({.name = "none waits for the next pass"});
      for (Tensor* w : {&early_, &middle_, &late_}) w->mutable_grad().reset();
      run(false);
      expect_reduced(bucket);
      optimizer.step();
      const ::torch::NoGradGuard no_grad;
      for (Tensor* w : {&early_, &middle_, &late_}) w->fill_(1.0);
    }
  }
}

TEST_F(BackwardFailureTest, AnExceptionOnAllRanksStaysTheirOwn) {
  auto optimizer = make({.op = ReduceOp::sum});
  for (int round = 0; round < 3; ++round) {
    EXPECT_EQ(error_of<std::runtime_error>([&] { run(true); }).what(), std::string("bad hook"));
    optimizer.zero_grad();
  }
  run(false);
  EXPECT_DOUBLE_EQ(middle_.grad().item<double>(),
                   2.0 * size() * (size() + 1.0) * (2.0 * size() + 1.0) / 6.0);
}

TEST_F(BackwardFailureTest, ParametersThatAreNotUsedAfterwardsAreSteppedAlike) {
  const auto all = {&early_, &middle_, &late_};
  DistributedOptimizer optimizer(
      optim::SGD({early_, middle_, late_}, optim::SGDOptions(0.5).momentum(0.5)));
  run(false);
  optimizer.step();
  const auto zero = [&] {
    for (Tensor* w : all)
      if (w->grad().defined()) w->mutable_grad().zero_();
  };
  zero();
  EXPECT_ANY_THROW(run(rank() == last_));
  zero();
  backward(early_, rank() + 1.0);
  optimizer.step();
  expect_same_bits_on_all_ranks({early_, middle_, late_});
  EXPECT_TRUE(late_.grad().defined());
}

template <typename Optimizer>
void expect_frozen_alike(Optimizer optimizer, Tensor late, const std::function<void(bool)>& run,
                         const std::function<void()>& without_late) {
  run(false);
  optimizer.step();
  optimizer.zero_grad();
  late.mutable_grad().reset();
  EXPECT_ANY_THROW(run(rank() == size() - 1));
  if constexpr (requires { optimizer.zero_grad(false); }) {
    optimizer.zero_grad(false);
  } else {
    optimizer.zero_grad();  // LibTorch 1.13 always zeroes in place
  }
  late.set_requires_grad(false);
  const Tensor before = late.detach().clone();
  for (int round = 0; round < 2; ++round) {
    without_late();
    optimizer.step();
  }
  EXPECT_FALSE(::torch::equal(late.detach(), before)) << "its momentum steps it";
  expect_same_bits_on_all_ranks({late});
}

TEST_F(BackwardFailureTest, AParameterThatIsFrozenAfterwardsIsSteppedAlike) {
  const auto reset = [&] {
    early_ = parameter({1.0, 1.0});
    late_ = parameter({1.0, 1.0, 1.0, 1.0, 1.0});
  };
  const auto pass = [&](bool throws) {
    const Tensor x = late_ * (rank() + 1.0);
    if (throws)
      x.register_hook([](const Tensor&) -> Tensor { throw std::runtime_error("bad hook"); });
    (early_.sum() * x).sum().backward();
  };
  const auto without_late = [&] { backward(early_, rank() + 1.0); };
  const auto sgd = [&] {
    return optim::SGD({early_, late_}, optim::SGDOptions(0.5).momentum(0.5));
  };
  reset();
  expect_frozen_alike(DistributedOptimizer(sgd()), late_, pass, without_late);
  for (const Sharding sharding : {Sharding::state, Sharding::state_and_gradients}) {
    reset();
    expect_frozen_alike(ShardedOptimizer(sgd(), {{"early", early_}, {"late", late_}}, {}, sharding),
                        late_, pass, without_late);
  }
}

// The rank that has thrown ends its pass only in the next one.
TEST_F(BackwardFailureTest, LayersMayBeFrozenAfterTheProgramHasResetGradients) {
  const double squares = (size() + 1.0) * (2.0 * size() + 1.0) / 6.0;
  ::torch::nn::Module module;
  module.register_parameter("early", early_);
  module.register_parameter("middle", middle_);
  module.register_parameter("late", late_);
  const auto expect_next_pass = [&] {
    EXPECT_ANY_THROW(run(rank() == last_));
    for (Tensor* w : {&early_, &middle_, &late_}) w->mutable_grad().reset();
    early_.set_requires_grad(false);
    run(false);
    expect_close(late_.grad(), values({2.0 * squares}));
    early_.set_requires_grad(true);
    for (Tensor* w : {&early_, &middle_, &late_}) w->mutable_grad().reset();
  };
  {
    auto optimizer = make();
    expect_next_pass();
    optimizer.zero_grad();
  }
  const DistributedGradients gradients(module);
  for (int round = 0; round < 2; ++round) expect_next_pass();
}

// A module's gradients know of no step, and so of no zero_grad().
TEST_F(BackwardFailureTest, WithoutStepsPassesCountFromTheFailure) {
  ::torch::nn::Module module;
  ::torch::nn::Module other;
  module.register_parameter("early", early_);
  module.register_parameter("late", late_);
  other.register_parameter("middle", middle_);
  const DistributedGradients gradients(module, {.backward_passes_per_step = 2});
  const DistributedGradients of_other(other, {.backward_passes_per_step = 2});
  const auto pass = [&](bool throws) {
    const Tensor x = late_ * (rank() + 1.0);
    if (throws)
      x.register_hook([](const Tensor&) -> Tensor { throw std::runtime_error("bad hook"); });
    ((early_.sum() + middle_.sum()) * x).sum().backward();
  };
  for (int round = 0; round < 2; ++round) {
    pass(false);
    EXPECT_ANY_THROW(pass(rank() == last_));
    for (Tensor* w : {&early_, &middle_, &late_}) w->mutable_grad().reset();
    for (int i = 0; i < 2; ++i) pass(false);
    expect_close(middle_.grad(), values({2.0 * mean_rank()}));
    expect_close(late_.grad(), values({6.0 * mean_rank()}));
    for (Tensor* w : {&early_, &middle_, &late_}) w->mutable_grad().reset();
  }
}

TEST_F(BackwardFailureTest, ParametersMayBeAddedAfterwards) {
  Tensor added = parameter({1.0});
  DistributedOptimizer optimizer(optim::SGD({early_, middle_, late_}, 1.0));
  for (const bool skips : {false, true}) {
    EXPECT_ANY_THROW(run(rank() == last_));
    for (Tensor* w : {&early_, &middle_, &late_}) w->mutable_grad().reset();
    if (skips) added = parameter({1.0});
    optimizer.add_param_group(optim::OptimizerParamGroup({added}));
    backward(added, rank() + 1.0);
    if (skips) {
      optimizer.skip_step();
      expect_close(added.grad(), values({mean_rank()}));
    } else {
      optimizer.step();
      expect_close(added, values({1.0 - mean_rank()}));
    }
  }
}

// Local gradients of such a pass are not applied.
TEST_F(BackwardFailureTest, APassWithoutReductionLeavesNothingFinal) {
  auto optimizer = make();
  const auto run_locally = [&] {
    const NoSync local = optimizer.no_sync();
    if (rank() == last_) {
      EXPECT_THROW(run(true), std::runtime_error);
    } else {
      run(false);
    }
  };
  run(false);
  run_locally();
  EXPECT_THAT(error_of<InvalidArgument>([&] { optimizer.step(); }).what(),
              HasSubstr("zero_grad() between"));
  for (Tensor* w : {&early_, &middle_, &late_}) w->mutable_grad().reset();
  run_locally();
  optimizer.step();
  expect_same_bits_on_all_ranks({early_, middle_, late_});
}

TEST_F(BackwardFailureTest, APassMoreOnOneRankIsAMismatch) {
  if (size() == 1) return;
  auto optimizer = make();
  run(false);
  if (rank() == 0) {
    const auto error = error_of<Mismatch>([&] { run(false); });
    EXPECT_THAT(error.what(), HasSubstr("step 1 on rank 0"));
  } else {
    optimizer.step();
    EXPECT_THROW(run(false), Mismatch);
  }
}

TEST_F(BackwardFailureTest, AParameterFrozenOnOneRankOnlyIsNamed) {
  if (size() == 1) return;
  auto optimizer = make();
  if (rank() == 0) middle_.set_requires_grad(false);
  if (rank() == 0) {
    EXPECT_EQ(error_of<InvalidArgument>([&] { run(false); }).tensor(), "middle");
  } else {
    run(false);
  }
  middle_.set_requires_grad(true);
  optimizer.zero_grad();
  run(false);
  optimizer.step();
  expect_same_bits_on_all_ranks({early_, middle_, late_});
}

TEST_F(BackwardFailureTest, GradientsThatShareMemoryAreRefused) {
  const double squares = (size() + 1.0) * (2.0 * size() + 1.0) / 6.0;
  auto optimizer = make();
  const auto share = [&] {
    early_.mutable_grad() = values({0.0, 0.0});
    middle_.mutable_grad() = early_.grad().slice(0, 1);
  };
  const auto refuse = [](const auto& call) {
    const auto error = error_of<InvalidArgument>(call);
    EXPECT_THAT(error.what(), HasSubstr("'early' and 'middle' share memory"));
    EXPECT_EQ(error.tensor(), "middle");
  };
  for (const bool everywhere : {true, false}) {
    if (everywhere || rank() == last_) {
      share();
      refuse([&] { run(false); });
    } else {
      EXPECT_EQ(error_of<BackwardFailed>([&] { run(false); }).ranks(), std::vector<int>{last_});
    }
    for (Tensor* w : {&early_, &middle_, &late_}) w->mutable_grad().reset();
    run(false);
    expect_reduced(squares);
  }
  optimizer.step();
  // Gradients set by hand, without a backward pass.
  const ::torch::Tensor rows = ::torch::zeros({3, 2}, f64);
  early_.mutable_grad() = rows.slice(0, 0, 2).select(1, 0);
  middle_.mutable_grad() = rows.slice(0, 1, 2).select(1, 0);  // with gaps
  refuse([&] { optimizer.synchronize(); });
  middle_.mutable_grad() = rows.slice(0, 1, 2).select(1, 1);  // between the others
  optimizer.synchronize();
  for (Tensor* w : {&early_, &middle_}) w->mutable_grad().reset();  // LibTorch zeroes no views
  optimizer.zero_grad();
  share();
  refuse([&] { optimizer.synchronize(); });
  middle_.mutable_grad() = values({rank() + 1.0});
  optimizer.synchronize();
  expect_close(middle_.grad(), values({mean_rank()}));
}

TEST_F(BackwardFailureTest, CreateGraphIsRefusedInFavorOfGrad) {
  auto optimizer = make();
  const auto error = error_of<InvalidArgument>(
      [&] { (late_ * late_).sum().backward({}, /*retain_graph=*/true, /*create_graph=*/true); });
  EXPECT_THAT(error.what(), HasSubstr("torch::autograd::grad"));
  late_.mutable_grad().reset();
  optimizer.zero_grad();
  run(false);
  optimizer.step();
  expect_same_bits_on_all_ranks({early_, middle_, late_});
}

}  // namespace
}  // namespace kolo::internal::testing_support
