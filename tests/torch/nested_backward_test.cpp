// SPDX-License-Identifier: Apache-2.0
// Calls of backward() inside of another one, as gradient checkpointing makes them: all are one
// pass.
#include "../support/halves_hook.hpp"
#include "support.hpp"

#include <functional>
#include <stdexcept>

namespace kolo::internal::testing_support {
namespace {

namespace optim = ::torch::optim;
using ::torch::Tensor;

std::function<void()> in_backward;

/// y = x. Its backward calls `in_backward`.
struct Calling : ::torch::autograd::Function<Calling> {
  static Tensor forward(::torch::autograd::AutogradContext* /*context*/, const Tensor& x) {
    return x.clone();
  }
  static ::torch::autograd::variable_list backward(::torch::autograd::AutogradContext* /*context*/,
                                                   ::torch::autograd::variable_list gradients) {
    const at::AutoGradMode on(true);
    in_backward();
    return gradients;
  }
};

/// A term of a loss, without a value, whose backward calls `in_backward`.
Tensor calling() { return Calling::apply(::torch::zeros({}, f64).set_requires_grad(true)); }

class NestedBackwardTest : public TorchTest {
 protected:
  /// A loss in whose backward `in_backward` is called so often. The gradient of the head, if it is
  /// used, accumulates first.
  [[nodiscard]] Tensor loss(int calls, bool uses_head) const {
    Tensor sum = ::torch::zeros({}, f64);
    for (int i = 0; i < calls; ++i) sum = sum + calling();
    return uses_head ? sum + (head_ * own_).sum() : sum;
  }
  void reset() {
    for (Tensor* w : {&head_, &shared_, &other_}) *w = parameter({1.0, 2.0});
    in_backward = [this] { backward(shared_, own_); };
  }
  [[nodiscard]] NamedParameters named() const {
    return {{"head", head_}, {"shared", shared_}, {"other", other_}};
  }

  const double own_ = rank() + 1.0;
  const int last_ = size() - 1;
  Tensor head_;
  Tensor shared_;
  Tensor other_;
};

// The shared weight of a recurrent layer, with a sequence of another length on each rank.
TEST_F(NestedBackwardTest, ASharedWeightMayAccumulateUnequallyOften) {
  const std::vector<DistributedOptimizerOptions> ways{
      {},
      {.op = ReduceOp::sum},
      {.num_groups = 1},
      {.hook = std::make_shared<HalvesHook>()},
      {.num_groups = 2, .hook = std::make_shared<HalvesHook>()}};
  const auto calls_of = [](int rank) { return rank == 0 ? 4 : 1; };
  double sum = 0.0;
  for (int r = 0; r < size(); ++r) sum += calls_of(r) * (r + 1.0);
  for (const DistributedOptimizerOptions& options : ways) {
    reset();
    const double divisor = options.op == ReduceOp::sum ? 1.0 : size();
    DistributedOptimizer optimizer(optim::SGD({head_, shared_, other_}, 1.0), named(), options);
    for (int step = 0; step < 3; ++step) {
      optimizer.zero_grad();
      for (Tensor* w : {&head_, &shared_}) w->mutable_grad().reset();
      for (int passes = 1; passes <= 2; ++passes) {
        loss(calls_of(rank()), /*uses_head=*/step != 1).backward();
        const double wanted = passes * sum / divisor;
        expect_close(shared_.grad(), values({wanted, wanted}), 1e-2);
      }
      optimizer.step();
    }
    expect_same_bits_on_all_ranks({head_, shared_, other_});
  }
}

// On the last rank a nested call accumulates first, on the others the outer one.
TEST_F(NestedBackwardTest, TheRanksMayBeginWithDifferentCalls) {
  const auto pass = [&] {
    int calls = 0;
    in_backward = [&] { backward(calls++ == 0 ? shared_ : other_, own_); };
    loss(2, /*uses_head=*/rank() != last_).backward();
  };
  double in_head = 0.0;
  for (int r = 0; r < last_; ++r) in_head += (r + 1.0) / size();
  const auto train = [&](auto& optimizer) {
    for (int step = 0; step < 2; ++step) {
      optimizer.zero_grad();
      pass();
      pass();
      optimizer.step();
    }
    const Tensor start = values({1.0, 2.0});
    expect_close(head_, start - 4.0 * in_head);
    expect_close(shared_, start - 4.0 * mean_rank());
    expect_close(other_, start - 4.0 * mean_rank());
  };
  const auto sgd = [&] { return optim::SGD({head_, shared_, other_}, 1.0); };
  reset();
  DistributedOptimizer distributed(sgd(), named());
  train(distributed);
  for (const Sharding sharding : {Sharding::state, Sharding::state_and_gradients}) {
    reset();
    ShardedOptimizer sharded(sgd(), named(), {}, sharding);
    train(sharded);
  }
  reset();
  ::torch::nn::Module module;
  for (const auto& [name, tensor] : named()) module.register_parameter(name, tensor);
  const DistributedGradients gradients(module);
  optim::SGD plain = sgd();
  train(plain);
}

TEST_F(NestedBackwardTest, TheOuterCallCountsAsOnePass) {
  reset();
  DistributedOptimizer optimizer(optim::SGD({head_, shared_, other_}, 1.0), named(),
                                 {.backward_passes_per_step = 2});
  for (int step = 0; step < 2; ++step) {
    optimizer.zero_grad();
    loss(3, /*uses_head=*/false).backward();
    expect_close(shared_.grad(), values({3.0 * own_, 3.0 * own_}));
    loss(3, /*uses_head=*/true).backward();
    expect_close(shared_.grad(), values({6.0 * mean_rank(), 6.0 * mean_rank()}));
  }
}

TEST_F(NestedBackwardTest, AFailureEndsThePassOfAllRanksAtOnce) {
  const std::vector<DistributedOptimizerOptions> ways{
      {}, {.num_groups = 1}, {.hook = std::make_shared<HalvesHook>()}};
  for (const DistributedOptimizerOptions& options : ways) {
    reset();
    ::torch::nn::Module module;
    for (const auto& [name, tensor] : named()) module.register_parameter(name, tensor);
    const DistributedGradients gradients(module, options);
    for (int round = 1; round < 3; ++round) {
      int calls = 0;
      in_backward = [&] {
        if (rank() == last_ && ++calls > round) throw std::runtime_error("bad layer");
        backward(shared_, own_);
      };
      const auto pass = [&] { loss(3, /*uses_head=*/round == 1).backward(); };
      if (rank() == last_) {
        EXPECT_ANY_THROW(pass());
      } else {
        EXPECT_EQ(error_of<BackwardFailed>(pass).ranks(), std::vector<int>{last_});
      }
      barrier({.name = "none waits for the next pass"});
      for (Tensor* w : {&head_, &shared_, &other_}) w->mutable_grad().reset();
      in_backward = [&] { backward(shared_, own_); };
      loss(2, /*uses_head=*/true).backward();
      expect_close(shared_.grad(), values({2.0 * mean_rank(), 2.0 * mean_rank()}), 1e-2);
      for (Tensor* w : {&head_, &shared_, &other_}) w->mutable_grad().reset();
    }
  }
}

TEST_F(NestedBackwardTest, AFailureThatTheOuterCallCatchesIsNone) {
  reset();
  DistributedOptimizer optimizer(optim::SGD({head_, shared_, other_}, 1.0), named());
  in_backward = [&] {
    Tensor x = shared_ * own_;
    x.register_hook([](const Tensor&) -> Tensor { throw std::runtime_error("bad hook"); });
    if (rank() == last_) {
      EXPECT_ANY_THROW((x.sum() + (other_ * own_).sum()).backward());
    } else {
      backward(other_, own_);
    }
  };
  loss(1, /*uses_head=*/true).backward();
  expect_close(head_.grad(), values({mean_rank(), mean_rank()}));
  optimizer.step();
  expect_same_bits_on_all_ranks({head_, shared_, other_});
}

TEST_F(NestedBackwardTest, ACallInAutogradGradIsAPassOfItsOwn) {
  reset();
  DistributedOptimizer optimizer(optim::SGD({head_, shared_, other_}, 1.0), named());
  in_backward = [&] {
    backward(shared_, own_);
    expect_close(shared_.grad(), values({mean_rank(), mean_rank()}));
  };
  const Tensor called = Calling::apply((head_ * own_).sum());
  const Tensor slope = ::torch::autograd::grad({called}, {head_}).front();
  expect_close(slope, values({own_, own_}));
  EXPECT_FALSE(head_.grad().defined());
  optimizer.step();
  expect_same_bits_on_all_ranks({head_, shared_, other_});
}

// As in gradient checkpointing: the graph of the outer call does not lead to the encoder.
TEST_F(NestedBackwardTest, AnExceptionInANestedCallIsThrownForItsParts) {
  reset();
  ::torch::nn::Module encoder;
  ::torch::nn::Module decoder;
  encoder.register_parameter("shared", shared_);
  decoder.register_parameter("head", head_);
  const DistributedGradients of_encoder(encoder);
  const DistributedGradients of_decoder(decoder);
  for (const bool fails : {true, true, false}) {
    in_backward = [&] {
      const Tensor x = shared_ * own_;
      if (fails && rank() == last_)
        x.register_hook([](const Tensor&) -> Tensor { throw std::runtime_error("bad hook"); });
      x.sum().backward();
    };
    const auto pass = [&] { loss(1, /*uses_head=*/true).backward(); };
    if (fails) {
      EXPECT_ANY_THROW(pass());
      barrier({.name = "none waits for the next pass"});
      for (Tensor* w : {&head_, &shared_}) w->mutable_grad().reset();
    } else {
      pass();
    }
  }
  expect_close(shared_.grad(), values({mean_rank(), mean_rank()}));
  expect_close(head_.grad(), values({mean_rank(), mean_rank()}));
}

}  // namespace
}  // namespace kolo::internal::testing_support
