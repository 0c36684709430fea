// SPDX-License-Identifier: Apache-2.0
// Repeated steps, until a rank deviates while another rank waits in the next step, and may have
// prepared its batches.
#include <algorithm>
#include <array>
#include <chrono>
#include <functional>

#include "fixture.hpp"

namespace kolo::internal {
namespace {

using testing::Each;

class InterruptedSteps : public WithSession {
 protected:
  void SetUp() override {
    if (n_ == 1) GTEST_SKIP() << "one rank waits for nobody";
    fill();
    for (int i = 0; i < repetitions; ++i) step();
  }

  /// Tensors of one piece, of two and of many; all ranks' elements are 1.
  void fill() {
    for (std::size_t i = 0; i < tensors_.size(); ++i) tensors_[i].assign(lengths[i], 1.0F);
  }

  std::vector<Future<void>> submit() {
    std::vector<Future<void>> futures;
    futures.reserve(tensors_.size());
    for (std::size_t i = 0; i < tensors_.size(); ++i)
      futures.push_back(allreduce_async(tensors_[i], named(i)));
    return futures;
  }

  void finish(std::vector<Future<void>>& futures) {
    for (Future<void>& future : futures) future.get();
    for (const std::vector<float>& tensor : tensors_)
      ASSERT_EQ(std::ranges::count(tensor, static_cast<float>(n_)), std::ssize(tensor));
    fill();
  }

  void step() {
    std::vector<Future<void>> futures = submit();
    finish(futures);
  }

  /// In each round another rank comes first: it submits the step and drives for a moment. The
  /// others do `something_else` before the step, and it does so after.
  void interrupt(const std::function<void()>& something_else) {
    for (int round = 0; round < 2 * n_; ++round) {
      for (int i = 0; i < repetitions; ++i) step();
      const bool first = me_ == round % n_;
      std::vector<Future<void>> futures;
      if (first) {
        futures = submit();
        futures.back().wait_for(moment);
      }
      something_else();
      if (!first) futures = submit();
      finish(futures);
    }
    EXPECT_GT(statistics().plans, 0U);
    expect_usable();
  }

  [[nodiscard]] static AllreduceOptions named(std::size_t i) {
    return {.name = "tensor " + std::to_string(i), .op = ReduceOp::sum};
  }

  static constexpr int repetitions = 12;
  static constexpr std::chrono::duration<double> moment{1e-3};
  static constexpr std::array<std::size_t, 4> lengths{1, 700, 100'000, 400'000};
  std::array<std::vector<float>, 4> tensors_{};
};

TEST_F(InterruptedSteps, ByAnotherOperation) {
  interrupt([&] {
    std::vector<float> other(700, 2.0F);
    allreduce(other, {.name = "other", .op = ReduceOp::sum});
    EXPECT_THAT(other, Each(2.0F * static_cast<float>(n_)));
  });
}

TEST_F(InterruptedSteps, ByABarrierOfAnotherProcessSet) {
  const ProcessSet all = add_process_set(ranks());
  interrupt([&] { barrier(all); });
}

TEST_F(InterruptedSteps, ByAMismatch) {
  for (int round = 0; round < n_; ++round) {
    for (int i = 0; i < repetitions; ++i) step();
    const bool first = me_ == round;
    std::vector<float>& tensor = tensors_[1];
    if (!first) tensor.resize(lengths[1] / 2);
    Future<void> future = allreduce_async(tensor, named(1));
    EXPECT_THROW(future.get(), Mismatch);
    EXPECT_THAT(tensor, Each(1.0F));
    fill();
  }
  step();
  expect_usable();
}

/// With few tags, a batch is held back while a long one runs; the one after it may not be prepared
/// in its place.
TEST_F(InterruptedSteps, ByALongBatch) {
  constexpr int steps = 40;
  constexpr int first_late = 25;
  std::vector<float> longest(std::size_t{16} << 20);
  std::vector<float> a(10), b(10), c(10);
  for (int step = 0; step < steps; ++step) {
    for (std::vector<float>* const tensor : {&longest, &a, &b, &c})
      std::ranges::fill(*tensor, 1.0F);
    // Adjacent operations have different operators, so that each is a batch of its own.
    Future<void> first = allreduce_async(longest, {.name = "longest", .op = ReduceOp::sum});
    Future<void> second = allreduce_async(a, {.name = "a", .op = ReduceOp::max});
    Future<void> third = allreduce_async(b, {.name = "b", .op = ReduceOp::sum});
    if (step > first_late && me_ == 1) third.wait_for(moment);
    Future<void> last = allreduce_async(c, {.name = "c", .op = ReduceOp::max});
    for (Future<void>* const future : {&last, &third, &second, &first}) future->get();
    ASSERT_THAT(a, Each(1.0F));
    ASSERT_THAT(b, Each(static_cast<float>(n_)));
    ASSERT_THAT(c, Each(1.0F));
  }
  EXPECT_GT(statistics().plans, 0U);
}

/// The memory of an operation that failed is the program's again, also if a batch with it was
/// prepared.
TEST_F(InterruptedSteps, ByRanksThatLeave) {
  if (me_ != 0) return;
  std::vector<Future<void>> futures = submit();
  for (Future<void>& future : futures) EXPECT_THROW(future.get(), PeerLeft);
  fill();
}

}  // namespace
}  // namespace kolo::internal
