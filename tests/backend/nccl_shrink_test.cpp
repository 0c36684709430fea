// SPDX-License-Identifier: Apache-2.0
// Communicators of some ranks, which are made of one that has them all.
#include <gmock/gmock.h>

#include <cstdint>
#include <deque>
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
  play({1, 3}, 1);        // of the one before
  play({0, 1, 2, 3}, 2);  // of its own
  play({0, 1}, 3);        // of the smallest that has both
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
  EXPECT_THAT(failure_of(world, running), AllOf(HasSubstr("of the ranks 1 cannot be made"),
                                                HasSubstr("ncclCommShrink failed")));
}

}  // namespace
}  // namespace kolo::internal::backend
