// SPDX-License-Identifier: Apache-2.0
// Two optimizers with communication hooks, which one rank steps one after the other without a
// backward pass, together with process sets, accumulation, joins and lost ranks.
#include "../support/halves_hook.hpp"
#include "support.hpp"

#include <functional>
#include <memory>

namespace kolo::internal::testing_support {
namespace {

namespace optim = ::torch::optim;
using ::torch::Tensor;

class SeveralHooksTest : public TorchTest {
 protected:
  /// Makes the optimizers; each has one parameter, which is 1.
  void make(DistributedOptimizerOptions options) {
    a_ = parameter({1.0});
    b_ = parameter({1.0});
    for (auto [optimizer, weight] : {std::pair(&first_, &a_), std::pair(&second_, &b_)}) {
      options.hook = std::make_shared<HalvesHook>();
      *optimizer =
          std::make_unique<DistributedOptimizer<optim::SGD>>(optim::SGD({*weight}, 1.0), options);
    }
  }
  /// A step in which each rank with a pass has gradients of `factor`.
  void step(bool has_pass, bool swapped, double factor = 1.0) {
    first_->zero_grad();
    second_->zero_grad();
    if (has_pass) backward_of_both(factor);
    step_both(swapped);
  }
  void backward_of_both(double factor) { ((a_.sum() + b_.sum()) * factor).backward(); }
  void step_both(bool swapped) {
    (swapped ? second_ : first_)->step();
    (swapped ? first_ : second_)->step();
  }
  void expect_weights(double expected) {
    expect_close(a_, values({expected}));
    expect_close(b_, values({expected}));
  }

  const int last_ = size() - 1;
  Tensor a_;
  Tensor b_;
  std::unique_ptr<DistributedOptimizer<optim::SGD>> first_;
  std::unique_ptr<DistributedOptimizer<optim::SGD>> second_;
};

TEST_F(SeveralHooksTest, InAProcessSet) {
  if (size() < 3) GTEST_SKIP() << "a set without one of the ranks";
  const ProcessSet set = add_process_set({0, last_});
  if (set.rank() >= 0) {
    make({.process_set = set});
    for (int i = 0; i < 4; ++i) step(rank() == 0, rank() == last_ && i % 2 == 1);
    expect_weights(1.0 - 4 * 0.5);
  }
  barrier();
}

TEST_F(SeveralHooksTest, WithSeveralBackwardPassesPerStep) {
  if (size() == 1) GTEST_SKIP() << "one rank has no hook";
  make({.backward_passes_per_step = 2});
  for (int i = 0; i < 4; ++i) {
    first_->zero_grad();
    second_->zero_grad();
    if (rank() < last_)
      for (int pass = 0; pass < 2; ++pass) backward_of_both(1.0 + pass);
    step_both(rank() == last_ && i % 2 == 1);
  }
  const double mean = (1.0 + 2.0) * last_ / size();
  expect_weights(1.0 - 4 * mean);
}

// One rank has joined, and another one has no pass.
TEST_F(SeveralHooksTest, WhileARankHasJoined) {
  if (size() < 3) GTEST_SKIP() << "a rank with passes, one without, and one that has joined";
  make({});
  for (int epoch = 0; epoch < 2; ++epoch) {
    if (rank() != 0)
      for (int i = 0; i < 3; ++i) step(rank() < last_, rank() == last_ && i % 2 == 1);
    join();
    broadcast_parameters(NamedParameters{{"a", a_}, {"b", b_}}, last_);
  }
  expect_weights(1.0 - 6 * (size() - 2.0) / size());
}

// A rank leaves before the others' second step, which fails on all of them without a hang.
TEST_F(SeveralHooksTest, AfterARankHasLeft) {
  if (size() < 3) GTEST_SKIP() << "a rank with passes, one without, and one that leaves";
  make({});
  step(rank() < last_, /*swapped=*/false);
  expect_weights(1.0 - static_cast<double>(last_) / size());
  if (rank() != 0)
    EXPECT_THROW(step(rank() < last_, rank() == last_), PeerLeft);
  else
    first_.reset();
}

}  // namespace
}  // namespace kolo::internal::testing_support
