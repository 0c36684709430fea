// SPDX-License-Identifier: Apache-2.0
// Communicators of some ranks, made by shrinking a communicator that contains them all.
#include <gmock/gmock.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "nccl_fixture.hpp"

namespace kolo::internal::backend {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(NcclShrinkTest, ACommunicatorOfSomeRanksIsMadeOfThatOfAll) {
  GpuWorld world({.ranks = 4});
  const auto play = [&](const std::vector<int>& ranks, std::uint64_t sequence) {
    std::deque<GpuTensors<float>> tensors;
    Running running;
    for (const int rank : ranks) {
      tensors.emplace_back(world, rank, Lengths{40, 9}, [rank](std::size_t i, std::int64_t k) {
        return static_cast<float>(element(rank, i, k));
      });
      tensors.back().set_type(DType::f32);
      Batch batch = batch_of(allreduce_of(ReduceOp::sum), world.size(), sequence);
      batch.ranks = ranks;
      batch.set = ranks;
      tensors.back().add_to(batch);
      running.push_back(world.rank(rank).backend->start(std::move(batch)));
    }
    ASSERT_TRUE(world.finish(running));
    for (const auto& own : tensors)
      for (std::int64_t k = 0; k < 40; ++k) {
        double wanted = 0;
        for (const int rank : ranks) wanted += element(rank, 0, k);
        ASSERT_EQ(own.output(0)[k], wanted);
      }
  };
  play({0, 1, 3}, 0);
  play({1, 3}, 1);        // shrinks the previous communicator
  play({0, 1, 2, 3}, 2);  // needs a communicator of its own
  play({0, 1}, 3);        // shrinks the smallest communicator with both ranks
  play({0, 2}, 4);
  play({1, 3}, 5);
  EXPECT_EQ(world.rank(1).nccl->inits(), 2);
  EXPECT_EQ(world.rank(1).nccl->shrinks(), 2);
  EXPECT_EQ(world.rank(2).nccl->inits(), 1);
  EXPECT_EQ(world.rank(2).nccl->shrinks(), 1);
}

TEST(NcclShrinkTest, AFailureToMakeOneOfAnotherIsAnError) {
  GpuWorld world({.ranks = 2});
  Allreduces all(world, {8});
  all.start(allreduce_of(ReduceOp::sum), 0);
  ASSERT_TRUE(all.finish());
  world.rank(1).cuda->faults.plan("ncclCommShrink");
  GpuTensors<float> tensors(world, 1, {8}, [](std::size_t, std::int64_t) { return 1.0F; });
  tensors.set_type(DType::f32);
  Batch batch = batch_of(allreduce_of(ReduceOp::sum), 2, 1);
  batch.ranks = {1};
  tensors.add_to(batch);
  Running running;
  running.push_back(world.rank(1).backend->start(std::move(batch)));
  EXPECT_THAT(failure_of(world, running),
              AllOf(HasSubstr("cannot create the NCCL communicator for ranks 1: "),
                    HasSubstr("ncclCommShrink failed")));
}

std::string failure_of_endless_shrink(const WorldOptions& options, int& aborts) {
  GpuWorld world(options);
  Allreduces all(world, {8, 8});
  all.start(allreduce_of(ReduceOp::sum), 0);
  EXPECT_TRUE(all.finish());
  const auto nccl = world.rank(1).nccl;
  nccl->looks_at_init = -1;
  Allreduces some(world, {8, 8});
  some.start_among({1}, {1}, allreduce_of(ReduceOp::sum), 1);
  while (nccl->shrinks() == 0) static_cast<void>(some.running.front()->step());
  const std::string failure = options.settings.nccl_timeout < std::chrono::seconds(1)
                                  ? failure_of(world, some.running)
                                  : "";
  some.running.clear();
  world.rank(1).backend.reset();  // waits for the abort
  aborts = nccl->aborts();
  return failure;
}

TEST(NcclShrinkTest, TheAbortOfTheParentEndsAShrinkThatNeverEnds) {
  int aborts = 0;
  EXPECT_EQ(failure_of_endless_shrink({.ranks = 2}, aborts), "");
  EXPECT_EQ(aborts, 2) << "the parent, and what was half made";
  WorldOptions options{.ranks = 2};
  options.settings.nccl_timeout = std::chrono::milliseconds(300);
  EXPECT_THAT(failure_of_endless_shrink(options, aborts),
              HasSubstr("ncclCommShrink is not done after 0.3 s"));
  EXPECT_EQ(aborts, 2);
}

/// A communicator created for an operation that NCCL lacks is never shrunk, because the other ranks
/// would not take part.
TEST(NcclShrinkTest, NothingIsMadeOfACommunicatorWithoutBatches) {
  GpuWorld world({.ranks = 4});
  Allreduces all(world, {8});
  all.start(allreduce_of(ReduceOp::sum), 0);
  ASSERT_TRUE(all.finish());
  std::deque<GpuTensors<std::int16_t>> tensors;
  Running running;
  const std::vector<int> three{0, 1, 2};
  for (const int rank : three) {
    tensors.emplace_back(world, rank, Lengths{5},
                         [](std::size_t, std::int64_t) { return std::int16_t{1}; });
    tensors.back().set_type(DType::i16);
    Batch batch = batch_of(allreduce_of(ReduceOp::sum), 3, 1);
    tensors.back().add_to(batch);
    running.push_back(world.rank(rank).backend->start(std::move(batch)));
  }
  ASSERT_TRUE(world.finish(running));
  Allreduces two(world, {8});
  two.start_among({0, 1}, {0, 1}, allreduce_of(ReduceOp::sum), 2);
  ASSERT_TRUE(two.finish());
  EXPECT_EQ(world.rank(0).nccl->shrinks(), 1);
  EXPECT_EQ(world.rank(2).nccl->shrinks(), 0);
}

/// Shorts, which NCCL does not reduce, of some ranks of all.
void reduce_shorts(GpuWorld& world, const std::vector<int>& ranks, std::uint64_t sequence) {
  std::deque<GpuTensors<std::int16_t>> tensors;
  Running running;
  for (const int rank : ranks) {
    tensors.emplace_back(world, rank, Lengths{5},
                         [](std::size_t, std::int64_t) { return std::int16_t{1}; });
    tensors.back().set_type(DType::i16);
    Batch batch = batch_of(allreduce_of(ReduceOp::sum), world.size(), sequence);
    batch.ranks = ranks;
    tensors.back().add_to(batch);
    running.push_back(world.rank(rank).backend->start(std::move(batch)));
  }
  ASSERT_TRUE(world.finish(running));
}

/// Its first batch that NCCL can execute comes when the one that it was to be made of has ended.
TEST(NcclShrinkTest, ACommunicatorIsNotMadeOfOneThatHasEnded) {
  GpuWorld world({.ranks = 4});
  const std::vector<int> all = GpuWorld::numbers(4);
  const auto reduce = [&](const std::vector<int>& ranks, std::uint64_t sequence,
                          std::uint64_t joins) {
    Allreduces batch(world, {8});
    batch.start_among(ranks, all, allreduce_of(ReduceOp::sum), sequence, joins);
    ASSERT_TRUE(batch.finish());
  };
  reduce(all, 0, 0);
  reduce({0, 1, 2}, 1, 0);
  reduce_shorts(world, {0, 1}, 2);
  reduce(all, 3, 2);
  ASSERT_NO_FATAL_FAILURE(reduce({0, 1}, 4, 2));
  EXPECT_EQ(world.rank(0).nccl->inits(), 1);
  EXPECT_EQ(world.rank(0).nccl->shrinks(), 2);
}

/// Epochs in which ranks join one after the other, and are all back in the next.
class NcclJoins : public testing::Test {
 protected:
  using Lists = std::vector<std::vector<int>>;

  /// A batch of each list, of all ranks before and after.
  void epoch(GpuWorld& world, const Lists& lists) {
    const std::vector<int> all = GpuWorld::numbers(world.size());
    ASSERT_NO_FATAL_FAILURE(reduce(world, all));
    for (const std::vector<int>& ranks : lists) ASSERT_NO_FATAL_FAILURE(reduce(world, ranks));
    ++joins_;
    ASSERT_NO_FATAL_FAILURE(reduce(world, all));
  }
  /// The workers end communicators some time after the batch.
  static void expect_communicators(GpuWorld& world, const std::vector<int>& counts) {
    for (int rank = 0; rank < world.size(); ++rank) {
      const int count = counts[static_cast<std::size_t>(rank)];
      const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
      while (world.rank(rank).nccl->communicators() > count &&
             std::chrono::steady_clock::now() < deadline)
        std::this_thread::yield();
      ASSERT_EQ(world.rank(rank).nccl->communicators(), count) << "rank " << rank;
    }
  }

 private:
  void reduce(GpuWorld& world, const std::vector<int>& ranks) {
    Allreduces batch(world, {30, 5});
    batch.start_among(ranks, GpuWorld::numbers(world.size()), allreduce_of(ReduceOp::sum),
                      sequence_++, joins_);
    ASSERT_TRUE(batch.finish());
  }

  std::uint64_t sequence_ = 0;
  std::uint64_t joins_ = 0;
};

TEST_F(NcclJoins, TheSameOrderInEachEpochMakesNoNewCommunicators) {
  GpuWorld world({.ranks = 3});
  for (int i = 0; i < 4; ++i) ASSERT_NO_FATAL_FAILURE(epoch(world, {{0, 1}, {0}, {0}}));
  EXPECT_EQ(world.rank(0).nccl->inits(), 1);
  EXPECT_EQ(world.rank(0).nccl->shrinks(), 2);
  EXPECT_EQ(world.rank(1).nccl->shrinks(), 1);
  EXPECT_EQ(world.rank(0).nccl->aborts(), 0);
  ASSERT_NO_FATAL_FAILURE(expect_communicators(world, {3, 2, 1}));
}

TEST_F(NcclJoins, TwoCommunicatorsOfAnEpochAreKeptAndTheOthersEnd) {
  GpuWorld world({.ranks = 4});
  for (int i = 0; i < 3; ++i) ASSERT_NO_FATAL_FAILURE(epoch(world, {{0, 1, 2}, {0, 1}, {0}}));
  EXPECT_EQ(world.rank(0).nccl->shrinks(), 2 + 3);
  EXPECT_EQ(world.rank(1).nccl->shrinks(), 2);
  ASSERT_NO_FATAL_FAILURE(expect_communicators(world, {3, 3, 2, 1}));
}

/// Rank 0 ends its part of {0, 1, 2} although it did not take part in what the others did instead.
TEST_F(NcclJoins, ACommunicatorThatAnEpochDidNotNeedEnds) {
  GpuWorld world({.ranks = 4});
  ASSERT_NO_FATAL_FAILURE(epoch(world, {{0, 1, 2}, {0, 1}}));
  ASSERT_NO_FATAL_FAILURE(expect_communicators(world, {3, 3, 2, 1}));
  ASSERT_NO_FATAL_FAILURE(epoch(world, {{1, 2, 3}}));
  ASSERT_NO_FATAL_FAILURE(expect_communicators(world, {1, 2, 2, 2}));
  ASSERT_NO_FATAL_FAILURE(epoch(world, {{0, 1, 2}, {0, 1}}));
  ASSERT_NO_FATAL_FAILURE(expect_communicators(world, {3, 3, 2, 1}));
  for (int i = 0; i < 2; ++i) ASSERT_NO_FATAL_FAILURE(epoch(world, {}));
  ASSERT_NO_FATAL_FAILURE(expect_communicators(world, {1, 1, 1, 1}));
  EXPECT_EQ(world.rank(0).nccl->shrinks(), 4);
  EXPECT_EQ(world.rank(0).nccl->inits(), 1);
}

/// Its parent ends before it does.
TEST_F(NcclJoins, ACommunicatorOutlivesTheOneThatItWasMadeOf) {
  GpuWorld world({.ranks = 3});
  ASSERT_NO_FATAL_FAILURE(epoch(world, {{0, 1}, {0}}));
  for (int i = 0; i < 2; ++i) ASSERT_NO_FATAL_FAILURE(epoch(world, {{0}}));
  ASSERT_NO_FATAL_FAILURE(expect_communicators(world, {2, 1, 1}));
  EXPECT_EQ(world.rank(0).nccl->shrinks(), 2);
  ASSERT_NO_FATAL_FAILURE(epoch(world, {{0, 1}}));
  EXPECT_EQ(world.rank(0).nccl->shrinks(), 3);
  EXPECT_EQ(world.rank(0).nccl->aborts(), 0);
}

TEST_F(NcclJoins, AnNcclThatCannotShrinkMakesEachCommunicatorOnce) {
  GpuWorld world({.ranks = 3, .nccl_derives = false});
  for (int i = 0; i < 3; ++i) ASSERT_NO_FATAL_FAILURE(epoch(world, {{0, 1}, {0}}));
  EXPECT_EQ(world.rank(0).nccl->inits(), 3) << "of all, of ranks 0 and 1, and of rank 0";
  EXPECT_EQ(world.rank(1).nccl->inits(), 2);
  EXPECT_EQ(world.rank(0).nccl->shrinks(), 0);
  EXPECT_EQ(world.rank(0).nccl->aborts(), 0);
  ASSERT_NO_FATAL_FAILURE(expect_communicators(world, {3, 2, 1}));
}

}  // namespace
}  // namespace kolo::internal::backend
