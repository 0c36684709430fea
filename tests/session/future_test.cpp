// SPDX-License-Identifier: Apache-2.0
// Asynchronous operations: their futures, in any order, and from several threads.
#include <stdexcept>
#include <thread>

#include "fixture.hpp"

namespace kolo::internal {
namespace {

using testing::Each;

using Futures = WithSession;

TEST_F(Futures, NamedOperationsMayComeInAnyOrder) {
  constexpr int tensors = 50;
  for (int round = 0; round < 5; ++round) {
    std::vector<std::vector<double>> values;
    for (int i = 0; i < tensors; ++i) values.emplace_back(i + 1, me_ + i);
    std::vector<Future<void>> futures;
    for (int k = 0; k < tensors; ++k) {
      const int i = me_ % 2 == 0 ? k : tensors - 1 - k;
      futures.push_back(
          allreduce_async(values[static_cast<std::size_t>(i)],
                          {.name = "tensor" + std::to_string(i), .op = ReduceOp::sum}));
    }
    for (Future<void>& future : futures) future.wait();
    for (int i = 0; i < tensors; ++i)
      EXPECT_THAT(values[static_cast<std::size_t>(i)], Each(rank_sum_ + i * n_));
  }
}

TEST_F(Futures, OfEveryOperationInAnyOrder) {
  for (int round = 0; round < 3; ++round) {
    std::int64_t sum = me_;
    std::int64_t told = me_;
    std::string text = std::to_string(me_);
    const std::vector<std::int32_t> rows(static_cast<std::size_t>(n_), me_);
    Future<void> reduced;
    Future<void> broadcasted;
    Future<void> said;
    Future<void> passed;
    Future<Gathered<std::int32_t>> gathered;
    Future<Gathered<std::int32_t>> exchanged;
    Future<std::vector<std::int32_t>> shared;
    for (int k = 0; k < 7; ++k) {
      switch ((k + me_ + round) % 7) {
        case 0: reduced = allreduce_async(sum, {.name = "0", .op = ReduceOp::sum}); break;
        case 1: broadcasted = broadcast_async(told, last_, {.name = "1"}); break;
        case 2: said = broadcast_async(text, last_, {.name = "2"}); break;
        case 3: passed = barrier_async({.name = "3"}); break;
        case 4: gathered = allgather_async(rows, {.name = "4"}); break;
        case 5: exchanged = alltoall_async(rows, {.name = "5"}); break;
        default: shared = reducescatter_async(rows, {.name = "6", .op = ReduceOp::max});
      }
    }
    EXPECT_THAT(shared.get(), Each(last_));
    EXPECT_EQ(exchanged.get().values, ranks());
    EXPECT_EQ(gathered.get().values.size(), static_cast<std::size_t>(n_ * n_));
    passed.get();
    said.get();
    broadcasted.get();
    reduced.get();
    EXPECT_EQ(sum, rank_sum_);
    EXPECT_EQ(told, last_);
    EXPECT_EQ(text, std::to_string(last_));
  }
}

TEST_F(Futures, ABufferGivenAwayComesBack) {
  Future<std::vector<float>> owned =
      allreduce_async(std::vector<float>(16, 1.0F), {.name = "owned", .op = ReduceOp::sum});
  EXPECT_THAT(owned.get(), Each(static_cast<float>(n_)));
  EXPECT_FALSE(owned.valid());
  EXPECT_THROW(owned.wait(), InvalidArgument);
  EXPECT_THROW((void)owned.ready(), InvalidArgument);
}

TEST_F(Futures, MayBeDroppedAndAskedInAnyWay) {
  std::vector<float> a(100, 1.0F);
  std::vector<float> b(100, 1.0F);
  { const Future<void> dropped = allreduce_async(a, {.name = "a", .op = ReduceOp::sum}); }
  EXPECT_THAT(a, Each(static_cast<float>(n_)));
  Future<void> future = allreduce_async(b, {.name = "b", .op = ReduceOp::sum});
  while (!future.wait_for(std::chrono::seconds(1))) {
  }
  EXPECT_TRUE(future.ready());
  future.wait();
  future.get();
  EXPECT_FALSE(future.valid());
}

TEST_F(Futures, DroppedInAnotherOrderOnEveryRank) {
  constexpr int tensors = 20;
  std::vector<std::vector<double>> values(tensors, std::vector<double>(10, me_));
  for (int round = 0; round < 3; ++round) {
    std::vector<Future<void>> futures(tensors);
    for (std::size_t k = 0; k < tensors; ++k) {
      const std::size_t i = (k + 7 * static_cast<std::size_t>(me_)) % tensors;
      futures[k] = allreduce_async(values[i], {.name = std::to_string(i), .op = ReduceOp::max});
    }
  }
  for (const std::vector<double>& value : values) EXPECT_THAT(value, Each(last_));
}

TEST_F(Futures, AFailedOneMayBeDropped) {
  if (n_ == 1) GTEST_SKIP() << "one rank cannot disagree";
  std::vector<float> tensor(me_ == 0 ? 3 : 4, 1.0F);
  { const Future<void> dropped = allreduce_async(tensor, {.name = "odd"}); }
  Future<void> replaced = allreduce_async(tensor, {.name = "odd"});
  replaced = {};
  EXPECT_THAT(tensor, Each(1.0F));
  expect_usable();
}

TEST_F(Futures, TheRankOfOneThatAnExceptionDestroysStays) {
  struct Go {
    ~Go() { barrier({.name = "go"}); }
  };
  // In some of many rounds, the last rank has not submitted when the exception destroys the future.
  for (int round = 0; round < 50; ++round) {
    std::vector<double> tensor(10, me_);
    if (me_ == last_) {
      barrier({.name = "go"});
      allreduce(tensor, {.name = "pending", .op = ReduceOp::sum});
    } else {
      try {
        const Future<void> pending =
            allreduce_async(tensor, {.name = "pending", .op = ReduceOp::sum});
        const Go after_the_exception_is_thrown;
        throw std::runtime_error("caught where the future is gone");
      } catch (const std::runtime_error&) {
      }
    }
    EXPECT_THAT(tensor, Each(rank_sum_));
  }
  expect_usable();
}

TEST_F(Futures, WaitForGivesUp) {
  if (n_ == 1) GTEST_SKIP() << "alone, an operation does not stay pending";
  for (const double seconds : {0.0, -1.0, 1e-3}) {
    if (me_ == 0) {
      Future<void> future = barrier_async({.name = "late"});
      EXPECT_FALSE(future.wait_for(std::chrono::duration<double>(seconds)));
      EXPECT_FALSE(future.ready());
      barrier({.name = "go"});
      future.wait();
    } else {
      barrier({.name = "go"});
      barrier({.name = "late"});
    }
  }
}

TEST_F(Futures, MayMoveToAnotherThread) {
  std::vector<double> tensor(10, me_);
  Future<void> future = allreduce_async(tensor, {.op = ReduceOp::sum});
  std::thread([moved = std::move(future)]() mutable { moved.wait(); }).join();
  EXPECT_FALSE(future.valid());  // NOLINT(bugprone-use-after-move)
  EXPECT_THAT(tensor, Each(rank_sum_));
}

TEST_F(Futures, ManyThreadsMaySubmitNamedOperations) {
  constexpr std::size_t threads = 8;
  std::vector<std::thread> workers;
  std::vector<int> wrong(threads, 0);
  for (std::size_t t = 0; t < threads; ++t) {
    workers.emplace_back([&, t] {
      const std::string name = "thread" + std::to_string(t);
      for (int i = 0; i < 50; ++i) {
        std::int64_t value = me_ + i;
        allreduce(value, {.name = name, .op = ReduceOp::sum});
        wrong[t] += value != rank_sum_ + i * n_;
        const std::vector<std::int32_t> mine(t, me_);
        wrong[t] +=
            allgather(mine, {.name = name}).values.size() != t * static_cast<std::size_t>(n_);
        broadcast(value, i % n_, {.name = name});
      }
    });
  }
  for (std::thread& worker : workers) worker.join();
  EXPECT_THAT(wrong, Each(0));
}

TEST_F(Futures, UnnamedOperationsOfTwoThreadsAreRefused) {
  if (n_ == 1) GTEST_SKIP() << "alone, an operation does not stay pending";
  if (me_ == 0) {
    Future<void> pending = barrier_async();
    float value = 1.0F;
    std::thread([&] { EXPECT_THROW(allreduce(value), InvalidArgument); }).join();
    barrier({.name = "go"});
    pending.wait();
  } else {
    barrier({.name = "go"});
    barrier();
  }
  expect_usable();
}

}  // namespace
}  // namespace kolo::internal
