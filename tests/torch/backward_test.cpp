// SPDX-License-Identifier: Apache-2.0
// Gradients are final when backward() returns: what a program may do before a step.
#include "../support/halves_hook.hpp"
#include "support.hpp"

#include <functional>

namespace kolo::internal::testing_support {
namespace {

namespace nn = ::torch::nn;
namespace optim = ::torch::optim;
using testing::HasSubstr;
using ::torch::Tensor;

/// How a gradient is reduced.
struct Reduction {
  std::string name;
  DistributedOptimizerOptions options;
  bool sums = false;
};

std::vector<Reduction> reductions() {
  return {{"average", {}},
          {"sum", {.op = ReduceOp::sum}, true},
          {"compressed", {.compression = Compression::bf16}},
          {"predivided", {.gradient_predivide_factor = 2.0}},
          {"grouped", {.num_groups = 1}},
          {"grouped sum", {.op = ReduceOp::sum, .num_groups = 1}, true},
          {"mean", {.accumulation = Accumulation::mean}},
          {"hook", {.hook = std::make_shared<HalvesHook>()}},
          {"hook of a group", {.num_groups = 1, .hook = std::make_shared<HalvesHook>()}}};
}

class BackwardTest : public TorchTest {
 protected:
  /// Runs `action` with an optimizer of `a_` and `b_` for each reduction.
  template <typename Action>
  void with_each(const Action& action) {
    for (const Reduction& reduction : reductions()) {
      SCOPED_TRACE(reduction.name);
      a_ = parameter({1.0, 2.0});
      b_ = parameter({3.0});
      divisor_ = reduction.sums ? 1.0 : size();
      bucket_ = mean_rank() * size() / divisor_;
      DistributedOptimizer optimizer(optim::SGD({a_, b_}, 1.0), {{"a", a_}, {"b", b_}},
                                     reduction.options);
      action(optimizer);
    }
  }

  /// Reduced: `factor` times the sum or mean of rank + 1.
  void expect_gradients(double a, double b) {
    expect_close(a_.grad(), values({a * bucket_, a * bucket_}));
    expect_close(b_.grad(), values({b * bucket_}));
  }

  void backward_of_both(double factor) {
    ((a_.sum() + b_.sum()) * factor * (rank() + 1)).backward();
  }

  Tensor a_;
  Tensor b_;
  double bucket_ = 0.0;
  double divisor_ = 1.0;
};

TEST_F(BackwardTest, GradientsAreFinalWhenItReturnsAndStayInAStep) {
  with_each([&](auto& optimizer) {
    backward_of_both(2.0);
    expect_gradients(2.0, 2.0);
    optimizer.synchronize();
    optimizer.step();
    expect_gradients(2.0, 2.0);
    expect_close(b_, values({3.0 - 2.0 * bucket_}));
  });
}

TEST_F(BackwardTest, PassesBeforeAStepAddUp) {
  with_each([&](auto& optimizer) {
    for (int step = 0; step < 2; ++step) {
      for (int pass = 1; pass <= 3; ++pass) {
        backward_of_both(1.0);
        expect_gradients(pass, pass);
      }
      // Partial ones, with another parameter on each rank.
      backward(rank() % 2 == 0 ? a_ : b_, 0.0);
      backward(a_, 4.0 * (rank() + 1));
      expect_gradients(7.0, 3.0);
      optimizer.step();
      optimizer.zero_grad();
    }
  });
}

// PyTorch's GAN example calls the module's zero_grad(), which the optimizer cannot see.
TEST_F(BackwardTest, GradientsMayBeZeroedBehindTheOptimizer) {
  with_each([&](auto& optimizer) {
    for (int round = 0; round < 4; ++round) {
      backward_of_both(1.0);
      expect_gradients(1.0, 1.0);
      backward_of_both(1.0);
      expect_gradients(2.0, 2.0);
      if (round < 2) optimizer.step();
      for (Tensor* w : {&a_, &b_}) {
        if (round % 2 == 0) w->mutable_grad().zero_();
        if (round % 2 == 1) w->mutable_grad().reset();
      }
    }
  });
}

TEST_F(BackwardTest, ClippedGradientsAccumulateMore) {
  with_each([&](auto&) {
    backward_of_both(1.0);
    a_.mutable_grad().mul_(0.5);
    backward_of_both(1.0);
    expect_gradients(1.5, 2.0);
  });
}

TEST_F(BackwardTest, WithoutSyncGradientsStayLocalUntilTheNextReduction) {
  with_each([&](auto& optimizer) {
    for (const bool is_used_again : {true, false}) {
      {
        const NoSync outer = optimizer.no_sync();
        NoSync inner = optimizer.no_sync();
        const NoSync moved = std::move(inner);
        backward_of_both(1.0);
        expect_close(b_.grad(), values({rank() + 1.0}));
      }
      if (is_used_again) backward_of_both(2.0);
      if (!is_used_again) backward(a_, 2.0 * (rank() + 1));
      expect_gradients(3.0, is_used_again ? 3.0 : 1.0);
      optimizer.zero_grad();
    }
    {
      const auto local = optimizer.no_sync();
      backward_of_both(5.0);
    }
    optimizer.step();  // applies no unreduced gradient
    expect_gradients(5.0, 5.0);
  });
}

TEST_F(BackwardTest, AReductionOfWhatALocalPassAddedToReducedGradientsIsRefused) {
  with_each([&](auto& optimizer) {
    const auto local = [&] {
      const NoSync guard = optimizer.no_sync();
      backward_of_both(1.0);
    };
    backward_of_both(1.0);
    local();
    const auto step = [&] { optimizer.step(); };
    EXPECT_THAT(error_of<InvalidArgument>(step).what(), HasSubstr("zero_grad() between"));
    const auto pass = [&] { backward_of_both(1.0); };
    EXPECT_THAT(error_of<InvalidArgument>(pass).what(), HasSubstr("zero_grad() between"));
    // However the gradients become zero.
    for (const Tensor& gradient : {a_.grad(), b_.grad()}) gradient.zero_();
    local();
    optimizer.step();
    expect_gradients(1.0, 1.0);
    optimizer.zero_grad();
    local();
    expect_close(b_.grad(), values({rank() + 1.0}));
  });
}

// A rank that has joined takes part with zeros in each pass.
TEST_F(BackwardTest, PassesAddUpBesideARankThatHasJoined) {
  with_each([&](auto& optimizer) {
    const bool joins_first = size() > 1 && rank() == size() - 1;
    if (!joins_first) {
      double bucket = 0.0;
      for (int r = 0; r < size() - (size() > 1 ? 1 : 0); ++r) bucket += (r + 1) / divisor_;
      for (int passes = 1; passes <= 3; ++passes) {
        backward_of_both(1.0);
        expect_close(b_.grad(), values({passes * bucket}));
      }
      optimizer.step();
    }
    (void)join();
  });
}

// Gradients set by hand in the memory of reduced ones are reduced.
TEST_F(BackwardTest, AStepReducesGradientsSetByHand) {
  with_each([&](auto& optimizer) {
    backward_of_both(1.0);
    optimizer.step();
    a_.mutable_grad().fill_(2.0 * (rank() + 1));
    b_.mutable_grad().fill_(2.0 * (rank() + 1));
    optimizer.step();
    expect_gradients(2.0, 2.0);
  });
}

TEST_F(BackwardTest, AutogradGradAndPartialBackwardTouchNothingElse) {
  with_each([&](auto& optimizer) {
    const Tensor loss = (a_.sum() + b_.sum()) * (rank() + 1);
    const auto slopes = ::torch::autograd::grad({loss}, {a_, b_}, {}, /*retain_graph=*/true);
    expect_close(slopes[1], values({rank() + 1.0}));
    EXPECT_FALSE(a_.grad().defined());
    loss.backward({}, /*retain_graph=*/true, /*create_graph=*/false, std::vector<Tensor>{a_});
    expect_close(a_.grad(), values({bucket_, bucket_}));
    EXPECT_FALSE(b_.grad().defined());
    optimizer.step();
    expect_close(b_, values({3.0}));
  });
}

TEST_F(BackwardTest, AStepWithoutBackwardTakesPart) {
  with_each([&](auto& optimizer) {
    if (rank() == 0) backward_of_both(static_cast<double>(size()));
    optimizer.step();  // on the other ranks in place of backward
    const double part = bucket_ / mean_rank();
    expect_close(b_.grad(), values({part}));
    optimizer.zero_grad();
    for (Tensor* w : {&a_, &b_}) w->mutable_grad() = ::torch::full_like(w->detach(), rank() + 1.0);
    optimizer.step();
    expect_gradients(1.0, 1.0);
  });
}

/// y = x. Its backward runs a backward pass of `inner` first, as checkpointing does.
struct Nested : ::torch::autograd::Function<Nested> {
  static Tensor forward(::torch::autograd::AutogradContext* /*context*/, const Tensor& x) {
    return x.clone();
  }
  static ::torch::autograd::variable_list backward(::torch::autograd::AutogradContext* /*context*/,
                                                   ::torch::autograd::variable_list gradients) {
    const at::AutoGradMode on(true);
    inner();
    return gradients;
  }
  static std::function<void()> inner;
};
std::function<void()> Nested::inner;

TEST_F(BackwardTest, NestedPassesOfSharedWeightsAreReduced) {
  with_each([&](auto& optimizer) {
    for (const bool outer_begins : {false, true}) {
      optimizer.zero_grad();
      Nested::inner = [&] { ((a_.sum() + b_.sum()) * 2.0 * (rank() + 1)).backward(); };
      // The outer pass begins before the inner one if a gradient of it is ready first.
      const Tensor late = Nested::apply((a_ * 1.0).sum());
      Tensor loss = late * (rank() + 1);
      if (outer_begins) loss = loss + (b_.sum() * 3.0 * (rank() + 1));
      loss.backward();
      expect_gradients(3.0, outer_begins ? 5.0 : 2.0);
    }
    optimizer.step();
  });
}

TEST_F(BackwardTest, OptimizersOfOneBackwardMayEndInAnyOrder) {
  Tensor a = parameter({1.0});
  Tensor b = parameter({1.0});
  DistributedOptimizer first(optim::SGD({a}, 1.0));
  DistributedOptimizer second(optim::SGD({b}, 1.0), {.op = ReduceOp::sum});
  for (int step = 0; step < 3; ++step) {
    first.zero_grad();
    second.zero_grad();
    const bool swapped = rank() % 2 == 1;
    const Tensor one = (swapped ? b : a).sum() * (rank() + 1);
    const Tensor two = (swapped ? a : b).sum() * (rank() + 1);
    (one + two).backward();
    expect_close(a.grad(), values({mean_rank()}));
    expect_close(b.grad(), values({mean_rank() * size()}));
  }
}

TEST_F(BackwardTest, OptimizersMayShareParameters) {
  Tensor shared = parameter({1.0});
  Tensor own = parameter({1.0});
  const DistributedOptimizerOptions sum{.op = ReduceOp::sum};
  DistributedOptimizer first(optim::SGD({shared}, 1.0), {{"w", shared}}, sum);
  DistributedOptimizer second(optim::SGD({shared, own}, 1.0), {{"w", shared}, {"own", own}}, sum);
  for (int step = 0; step < 2; ++step) {
    first.zero_grad();
    second.zero_grad();
    ((shared + own) * (rank() + 1)).sum().backward();
    expect_close(shared.grad(), values({mean_rank() * size()}));
    expect_close(own.grad(), values({mean_rank() * size()}));
    first.step();
    second.step();
  }
  expect_close(shared, values({1.0 - 4.0 * mean_rank() * size()}));
  EXPECT_EQ(error_of<InvalidArgument>([&] {
              DistributedOptimizer(optim::SGD({shared}, 1.0), {{"again", shared}});
            }).tensor(),
            "again");
}

// Autograd hands both parameters, and what is below, views of the same memory.
TEST_F(BackwardTest, ViewsOfOneGradientAreReducedApart) {
  constexpr std::int64_t length = 100000;
  const auto ones = [] { return ::torch::ones({1, length}, f64).set_requires_grad(true); };
  Tensor a = ones();
  Tensor b = ones();
  Tensor below = ones();
  DistributedOptimizer optimizer(optim::SGD({a, b, below}, 1.0), {.op = ReduceOp::sum});
  for (int step = 0; step < 3; ++step) {
    for (Tensor* w : {&a, &b, &below}) w->mutable_grad().reset();
    const Tensor x = (below * 2.0).view(-1);
    ((x + a.view(-1) + b.view(-1)) * (rank() + 1)).sum().backward();
    EXPECT_NE(a.grad().data_ptr(), b.grad().data_ptr());
    const double sum = mean_rank() * size();
    for (const Tensor* w : {&a, &b})
      EXPECT_TRUE(::torch::equal(w->grad(), ::torch::full_like(a, sum)));
    EXPECT_TRUE(::torch::equal(below.grad(), ::torch::full_like(a, 2.0 * sum)));
    optimizer.step();
  }
}

TEST_F(BackwardTest, GradientsOfAModuleServePlainOptimizers) {
  ::torch::manual_seed(1);
  nn::Linear layer(2, 1);
  layer->to(f64);
  DistributedGradients gradients(*layer, {.op = ReduceOp::sum, .backward_passes_per_step = 2});
  optim::SGD optimizer(layer->parameters(), 1.0);
  const auto run = [&] {
    (layer->forward(::torch::ones({1, 2}, f64)).sum() * (rank() + 1)).backward();
  };
  for (int step = 0; step < 3; ++step) {
    layer->zero_grad();
    run();
    run();
    expect_close(layer->bias.grad(), values({2.0 * mean_rank() * size()}));
    optimizer.step();
  }
  layer->zero_grad();
  {
    const auto local = gradients.no_sync();
    run();
  }
  gradients.synchronize();
  gradients.synchronize();
  expect_close(layer->bias.grad(), values({mean_rank() * size()}));
}

}  // namespace
}  // namespace kolo::internal::testing_support
