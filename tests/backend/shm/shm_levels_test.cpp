// SPDX-License-Identifier: Apache-2.0
// Ranks divided by NUMA nodes: the groups, and which ranks wait for which. One thread drives all
// ranks.
#include <gmock/gmock.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <numeric>
#include <utility>

#include "../tensors.hpp"
#include "backend/shm/groups.hpp"
#include "node_layouts.hpp"
#include "shm_host.hpp"

namespace kolo::internal::backend {
namespace {

using shm::Groups;
using testing::ElementsAre;
using testing::IsEmpty;

std::vector<int> all_ranks(std::size_t size) {
  std::vector<int> all(size);
  std::iota(all.begin(), all.end(), 0);
  return all;
}

std::optional<Groups> divide(const std::vector<int>& nodes, int own = 0) {
  return Groups::of(all_ranks(nodes.size()), own, {.of_ranks = nodes});
}

TEST(Groups, AreInTheOrderOfTheNodes) {
  const auto groups = divide({2, 2, 0, 0, 0, 1, 1, 2, 1, 0}, 7);
  ASSERT_TRUE(groups);
  ASSERT_EQ(groups->size(), 3);
  EXPECT_THAT(groups->ranks(0), ElementsAre(2, 3, 4, 9));
  EXPECT_THAT(groups->ranks(1), ElementsAre(5, 6, 8));
  EXPECT_THAT(groups->ranks(2), ElementsAre(0, 1, 7));
  EXPECT_EQ(groups->own(), 2);
  EXPECT_EQ(groups->owners(), 3);
  EXPECT_THAT(groups->counterparts(), ElementsAre(4, 8));
}

TEST(Groups, ARankBeyondTheSmallestGroupOwnsNothing) {
  const std::vector<int> nodes{0, 0, 0, 0, 0, 0, 1, 1, 1};
  EXPECT_THAT(divide(nodes, 2)->counterparts(), ElementsAre(8));
  EXPECT_THAT(divide(nodes, 3)->counterparts(), IsEmpty());
  EXPECT_EQ(divide(nodes, 3)->own(), 0);
}

TEST(Groups, AreOfTheRanksThatTakePart) {
  // Every other rank of the host.
  const std::vector<int> nodes{0, 5, 0, 5, 0, 5, 0, 5, 0, 5, 1, 5, 1, 5, 1, 5, 1, 5};
  std::vector<int> even;
  for (int rank = 0; rank < 18; rank += 2) even.push_back(rank);
  const auto groups = Groups::of(even, 8, {.of_ranks = nodes});
  ASSERT_TRUE(groups);
  ASSERT_EQ(groups->size(), 2);
  EXPECT_THAT(groups->ranks(1), ElementsAre(5, 6, 7, 8));
  EXPECT_THAT(groups->counterparts(), ElementsAre(3));
}

TEST(Groups, AreNotMadeWhereTheyAreOfNoUse) {
  EXPECT_TRUE(divide({0, 0, 0, 0, 0, 0, 1, 1, 1}));
  EXPECT_FALSE(divide({0, 0, 0, 0, 0, 0, 0, 1, 1})) << "few ranks would reduce";
  EXPECT_FALSE(divide({0, 0, 0, 0, 0, 0, 1, 1})) << "few ranks";
  EXPECT_FALSE(divide({0, 0, 0, 0, 0, 0, 0, 0, 1})) << "a rank alone on a node";
  EXPECT_FALSE(divide({0, 0, 0, 0, -1, -1, 1, 1, 1})) << "ranks without a node";
  EXPECT_FALSE(divide(std::vector(9, 0))) << "one node";
  EXPECT_FALSE(divide(std::vector(9, -1))) << "nothing known";
  EXPECT_FALSE(Groups::of(all_ranks(9), 0, {})) << "nothing known";
}

using Running = std::unique_ptr<Execution>;

/// Ranks 0, 2 and 4 are on one node, 1 and 3 on another.
class ShmLevels : public testing::Test {
 protected:
  static constexpr int size = 5;
  static constexpr std::int64_t bytes_per_piece = std::int64_t{64} << 10;
  static constexpr std::size_t heap_bytes = std::size_t{1} << 20;
  static constexpr std::int64_t elements = 20'000;  // three pieces

  struct Sum {
    Tensors<float> tensor;
    float expected;
  };

  ShmLevels()
      : host_(all_ranks(size), bytes_per_piece, heap_bytes, few_ranks_on({0, 1, 0, 1, 0})) {}

  /// A sum of ones.
  void start_all(bool in_heaps) { start(all_ranks(size), 0, in_heaps); }
  void start(const std::vector<int>& ranks, std::uint64_t sequence, bool in_heaps = false) {
    running_.resize(size);
    for (const int rank : ranks) {
      if (in_heaps)
        array_memory() = [this, rank](std::size_t) {
          return std::shared_ptr<std::byte>(host_.heap(rank), [](std::byte*) {});
        };
      Sum& sum = sums_.emplace_back(
          Sum{Tensors<float>({elements}, true, one), static_cast<float>(ranks.size())});
      array_memory() = nullptr;
      Batch batch;
      batch.kind = allreduce_of(ReduceOp::sum);
      batch.set = batch.ranks = ranks;
      batch.sequence = sequence;
      sum.tensor.add_to(batch);
      running(rank) = host_.backend(rank).start(std::move(batch));
    }
  }

  /// Until nothing moves any more. Those that are done become null.
  void step(const std::vector<int>& ranks) {
    for (bool moved = true; std::exchange(moved, false);)
      for (const int rank : ranks) {
        Running& execution = running(rank);
        if (execution == nullptr) continue;
        const Progress progress = execution->step();
        moved |= progress != Progress::waiting;
        if (progress == Progress::done) execution.reset();
      }
  }

  [[nodiscard]] bool all_done() const {
    return std::ranges::all_of(running_, [](const Running& each) { return each == nullptr; });
  }
  [[nodiscard]] Awaited awaited_by(int rank) const {
    return running_[static_cast<std::size_t>(rank)]->waits_for();
  }
  void expect_sums() {
    for (Sum& sum : sums_)
      EXPECT_TRUE(sum.tensor.hold([&](std::size_t, std::int64_t) { return sum.expected; }, one));
  }

  Running& running(int rank) { return running_[static_cast<std::size_t>(rank)]; }
  static float one(std::size_t, std::int64_t) { return 1.0F; }

  ShmHost host_;
  std::deque<Sum> sums_{};
  std::vector<Running> running_{};  // by rank
};

TEST_F(ShmLevels, ReportsNameRanksOfTheOwnNodeAndCounterparts) {
  start_all(false);
  step({0, 1, 2, 3});
  // Rank 4 owns nothing and has not deposited; the other node waits for results of its own.
  EXPECT_THAT(awaited_by(0).ranks, ElementsAre(4));
  EXPECT_EQ(awaited_by(0).what, "to deposit piece 0");
  EXPECT_THAT(awaited_by(1).ranks, ElementsAre(4));
  EXPECT_EQ(awaited_by(1).what, "to deposit their part");
  EXPECT_THAT(awaited_by(3).ranks, ElementsAre(4));
  step(all_ranks(size));
  EXPECT_TRUE(all_done());
  expect_sums();
}

TEST_F(ShmLevels, ARankNeedsOnlyPartialResultsOfAnotherNode) {
  start_all(false);
  EXPECT_EQ(running(4)->step(), Progress::moved);  // deposits
  step({0, 1, 2, 3});
  EXPECT_EQ(running(1), nullptr);
  EXPECT_EQ(running(3), nullptr);
  EXPECT_THAT(awaited_by(0).ranks, ElementsAre(4));
  step({0, 2, 4});
  EXPECT_TRUE(all_done());
  expect_sums();
}

TEST_F(ShmLevels, APartialResultIsKeptUntilTheOtherNodeHasReadIt) {
  start_all(false);
  step({1, 3});
  step({0, 2, 4});
  // With the partial results of ranks 1 and 3, which have not read theirs.
  for (const int rank : {0, 2, 4}) ASSERT_EQ(running(rank), nullptr);
  // The next batch of the lane, among the ranks of that node alone.
  std::vector<Running> before = std::move(running_);
  running_.clear();
  start({0, 2, 4}, shm::lane_count);
  step({0, 2, 4});
  ASSERT_NE(running(0), nullptr);
  EXPECT_EQ(awaited_by(0).what, "readers of the batch before it");
  std::swap(before, running_);
  step({1, 3});
  EXPECT_TRUE(all_done());
  running_ = std::move(before);
  step({0, 2, 4});
  EXPECT_TRUE(all_done());
  expect_sums();
}

TEST_F(ShmLevels, TensorsInHeapsAreReadAndWrittenThere) {
  start_all(true);
  step(all_ranks(size));
  EXPECT_TRUE(all_done());
  expect_sums();
}

TEST_F(ShmLevels, ARankWhoseSessionHasFailedIsNeitherWrittenNorRead) {
  start_all(true);
  EXPECT_EQ(running(4)->step(), Progress::moved);  // its tensors may be used from now on
  host_.backend(4).abandon();
  running(4).reset();
  std::fill_n(sums_[4].tensor.output(0).elements.get(), elements, 0.5F);
  step({0, 1, 2, 3});
  // The owners of its node wait for it, and the other node for them: nobody takes a wrong result.
  for (const int rank : {0, 1, 2, 3}) ASSERT_NE(running(rank), nullptr);
  for (const int rank : {0, 2}) EXPECT_THAT(awaited_by(rank).ranks, ElementsAre(4));
  EXPECT_THAT(awaited_by(1).ranks, ElementsAre(0));
  EXPECT_THAT(awaited_by(3).ranks, ElementsAre(2));
  for (std::int64_t k = 0; k < elements; ++k) ASSERT_EQ(sums_[4].tensor.output(0)[k], 0.5F);
}

}  // namespace
}  // namespace kolo::internal::backend
