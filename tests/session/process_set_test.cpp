// SPDX-License-Identifier: Apache-2.0
// Process sets: creation, use side by side, and removal.
#include <algorithm>
#include <array>
#include <thread>

#include "../support/world.hpp"
#include "fixture.hpp"

namespace kolo::internal {
namespace {

using testing::Each;
using testing::HasSubstr;

class ProcessSets : public WithSession {
 protected:
  /// The ranks of this parity.
  [[nodiscard]] std::vector<int> alike(int parity) const {
    std::vector<int> ranks;
    for (int rank = parity; rank < n_; rank += 2) ranks.push_back(rank);
    return ranks;
  }

  /// Fails unless an allreduce in the set, of which this rank is a member, works.
  void expect_sum(const ProcessSet& set) const {
    std::int64_t value = me_ + 1;
    allreduce(value, {.op = ReduceOp::sum, .process_set = set});
    std::int64_t sum = 0;
    for (const int rank : set.ranks()) sum += rank + 1;
    EXPECT_EQ(value, sum);
  }
};

TEST_F(ProcessSets, TheWorldIsTheDefaultOne) {
  EXPECT_EQ(world(), ProcessSet());
  EXPECT_EQ(world().id(), 0);
  EXPECT_EQ(world().ranks(), ranks());
  EXPECT_EQ(world().size(), n_);
  EXPECT_EQ(world().rank(), me_);
  EXPECT_TRUE(world().contains(last_));
  EXPECT_FALSE(world().contains(n_));
  EXPECT_FALSE(world().contains(-1));
}

TEST_F(ProcessSets, OfAllRanksIsOneBesideTheWorld) {
  const ProcessSet all = add_process_set(ranks());
  std::vector<int> backwards = ranks();
  std::reverse(backwards.begin(), backwards.end());
  EXPECT_EQ(add_process_set(backwards), all);
  EXPECT_EQ(all.ranks(), ranks());
  EXPECT_NE(all, world());
  expect_sum(all);
  remove_process_set(all);
  expect_usable();
}

TEST_F(ProcessSets, SayWhatTheyAre) {
  const ProcessSet set = add_process_set({last_});
  EXPECT_EQ(set.ranks(), std::vector{last_});
  EXPECT_EQ(set.size(), 1);
  EXPECT_EQ(set.rank(), me_ == last_ ? 0 : -1);
  EXPECT_TRUE(set.contains(last_));
  EXPECT_EQ(set.contains(0), n_ == 1);
  std::int64_t id = set.id();
  broadcast(id, 0);
  EXPECT_EQ(id, set.id());
}

TEST_F(ProcessSets, TheSameRanksAreTheSameSet) {
  if (n_ < 3) GTEST_SKIP() << "needs a set of two beside the world";
  const ProcessSet set = add_process_set({last_, 0});
  EXPECT_EQ(add_process_set({0, last_}), set);
  EXPECT_EQ(set.ranks(), (std::vector{0, last_}));
  const ProcessSet other = add_process_set({0, 1});
  EXPECT_NE(other, set);
  EXPECT_NE(other.id(), set.id());
}

TEST_F(ProcessSets, CarryEveryCollective) {
  if (n_ == 1) GTEST_SKIP() << "one rank has no halves";
  const std::array halves{add_process_set(alike(0)), add_process_set(alike(1))};
  const ProcessSet& mine = halves[static_cast<std::size_t>(me_ % 2)];
  const int members = mine.size();
  const auto in_set = static_cast<std::size_t>(members);
  EXPECT_EQ(mine.rank(), me_ / 2);
  expect_sum(mine);
  float average = static_cast<float>(me_);
  allreduce(average, {.process_set = mine});
  EXPECT_EQ(average, static_cast<float>(me_ % 2 + members - 1));

  std::vector<std::int32_t> a(3, me_);
  std::vector<double> b(3, 1.0);
  grouped_allreduce({a, b}, {.op = ReduceOp::max, .process_set = mine});
  EXPECT_THAT(a, Each(mine.ranks().back()));

  const std::vector<std::int32_t> input(in_set, me_);
  const Gathered<std::int32_t> gathered = allgather(input, {.process_set = mine});
  EXPECT_EQ(gathered.counts, std::vector<std::int64_t>(in_set, members));
  EXPECT_EQ(gathered.values.back(), mine.ranks().back());
  EXPECT_EQ(alltoall(input, {.process_set = mine}).values, mine.ranks());
  EXPECT_THAT(reducescatter(input, {.op = ReduceOp::min, .process_set = mine}), Each(me_ % 2));

  for (const int root : mine.ranks()) {
    std::int64_t value = me_;
    broadcast(value, root, {.process_set = mine});
    EXPECT_EQ(value, root);
    std::string text = std::to_string(me_);
    broadcast(text, root, {.process_set = mine});
    EXPECT_EQ(text, std::to_string(root));
  }
  EXPECT_EQ(allgather(std::to_string(me_), {.process_set = mine}).front(), std::to_string(me_ % 2));
  std::vector<double> parallel(4, 2.0);
  allreduce(parallel, {.op = ReduceOp::adasum, .process_set = mine});
  EXPECT_THAT(parallel, Each(testing::DoubleNear(2.0, 1e-12)));
  barrier(mine);
  barrier({.name = "named", .process_set = mine});
}

TEST_F(ProcessSets, OfOneRank) {
  std::vector<ProcessSet> alone;
  for (int rank = 0; rank < n_; ++rank) alone.push_back(add_process_set({rank}));
  const ProcessSet& mine = alone[static_cast<std::size_t>(me_)];
  double value = me_;
  allreduce(value, {.process_set = mine});
  EXPECT_EQ(value, me_);
  const std::vector<std::int32_t> input{me_};
  EXPECT_EQ(allgather(input, {.process_set = mine}).values, input);
  barrier(mine);
}

TEST_F(ProcessSets, MayOverlap) {
  if (n_ < 3) GTEST_SKIP() << "needs three ranks";
  std::vector<ProcessSet> sets;  // {0, 1}, {1, 2}, ...
  for (int rank = 0; rank < last_; ++rank) sets.push_back(add_process_set({rank, rank + 1}));
  // Forwards and backwards, so that neighbors wait for each other in different sets.
  std::vector<Future<void>> futures;
  std::vector<std::int64_t> values(sets.size(), me_);
  for (std::size_t k = 0; k < sets.size(); ++k) {
    const std::size_t i = me_ % 2 == 0 ? k : sets.size() - 1 - k;
    if (sets[i].rank() >= 0)
      futures.push_back(allreduce_async(values[i], {.op = ReduceOp::sum, .process_set = sets[i]}));
  }
  for (Future<void>& future : futures) future.wait();
  for (std::size_t i = 0; i < sets.size(); ++i)
    EXPECT_EQ(values[i], sets[i].rank() >= 0 ? 2 * static_cast<int>(i) + 1 : me_);
}

TEST_F(ProcessSets, TheSameNameInSeveralSetsIsSeveralOperations) {
  if (n_ == 1) GTEST_SKIP() << "one rank has no halves";
  const std::array halves{add_process_set(alike(0)), add_process_set(alike(1))};
  const ProcessSet& mine = halves[static_cast<std::size_t>(me_ % 2)];
  for (int round = 0; round < 5; ++round) {
    std::vector<double> in_world(10, me_);
    std::vector<double> in_half(5, 1.0);
    Future<void> first = allreduce_async(in_world, {.name = "same", .op = ReduceOp::sum});
    Future<void> second =
        allreduce_async(in_half, {.name = "same", .op = ReduceOp::sum, .process_set = mine});
    second.wait();
    first.wait();
    EXPECT_THAT(in_world, Each(rank_sum_));
    EXPECT_THAT(in_half, Each(mine.size()));
  }
}

TEST_F(ProcessSets, RunSideBySideInSeveralThreads) {
  if (n_ == 1) GTEST_SKIP() << "one rank has no halves";
  std::vector<ProcessSet> sets{world(), add_process_set(alike(0)), add_process_set(alike(1))};
  if (n_ > 2) sets.push_back(add_process_set({0, 1}));
  std::vector<std::thread> threads;
  std::vector<int> wrong(sets.size(), 0);
  for (std::size_t i = 0; i < sets.size(); ++i) {
    if (sets[i].rank() < 0) continue;
    threads.emplace_back([&, i] {
      std::int64_t sum = 0;
      for (const int rank : sets[i].ranks()) sum += rank;
      const std::string name = i == 0 ? "in the world" : "";
      for (int round = 0; round < 100; ++round) {
        std::int64_t value = me_ + round;
        allreduce(value, {.name = name, .op = ReduceOp::sum, .process_set = sets[i]});
        if (value != sum + round * sets[i].size()) ++wrong[i];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(wrong, Each(0));
}

TEST_F(ProcessSets, UseByANonMemberIsRefused) {
  if (n_ == 1) GTEST_SKIP() << "one rank is a member of every set";
  const ProcessSet first = add_process_set({0});
  if (me_ != 0) {
    std::vector<float> tensor(4);
    const auto refused = [&](auto call) {
      const auto error = thrown_by<InvalidArgument>(call);
      EXPECT_EQ(error.ranks(), std::vector{me_});
      EXPECT_THAT(error.what(), HasSubstr("rank " + std::to_string(me_) + " is no member"));
    };
    refused([&] { allreduce(tensor, {.process_set = first}); });
    refused([&] { grouped_allreduce({tensor}, {.process_set = first}); });
    refused([&] { (void)allgather(tensor, {.process_set = first}); });
    refused([&] { (void)alltoall(tensor, {.process_set = first}); });
    refused([&] { (void)reducescatter(tensor, {.process_set = first}); });
    refused([&] { broadcast(tensor, 0, {.process_set = first}); });
    refused([&] { barrier(first); });
    EXPECT_EQ(thrown_by<InvalidArgument>([&] {
                allreduce(tensor, {.name = "mine", .process_set = first});
              }).tensor(),
              "mine");
  }
  expect_usable();
}

TEST_F(ProcessSets, ARootOutsideTheSetIsRefused) {
  if (n_ == 1) GTEST_SKIP() << "every rank is in every set";
  const ProcessSet set = add_process_set({0});
  float value = 1.0F;
  if (me_ == 0) {
    const auto error = thrown_by<InvalidArgument>(
        [&] { broadcast(value, last_, {.name = "outside", .process_set = set}); });
    EXPECT_EQ(error.tensor(), "outside");
    EXPECT_THAT(error.what(), HasSubstr("root " + std::to_string(last_)));
    broadcast(value, 0, {.name = "outside", .process_set = set});
  }
  expect_usable();
}

TEST_F(ProcessSets, AMismatchInOneLeavesTheOthersAlone) {
  if (n_ < 3) GTEST_SKIP() << "needs two ranks in a set beside the world";
  const ProcessSet set = add_process_set({0, 1});
  std::vector<double> in_world(10, me_);
  Future<void> untouched = allreduce_async(in_world, {.name = "untouched", .op = ReduceOp::sum});
  if (set.rank() >= 0) {
    std::vector<float> tensor(me_ == 0 ? 3 : 4, 1.0F);
    const auto error =
        thrown_by<Mismatch>([&] { allreduce(tensor, {.name = "odd", .process_set = set}); });
    EXPECT_EQ(error.ranks(), (std::vector{0, 1}));
    EXPECT_THAT(tensor, Each(1.0F));
    expect_sum(set);
  }
  untouched.wait();
  EXPECT_THAT(in_world, Each(rank_sum_));
}

TEST_F(ProcessSets, WrongRanksAreRefused) {
  EXPECT_THROW((void)add_process_set(std::vector<int>{}), InvalidArgument);
  EXPECT_THROW((void)add_process_set({0, 0}), InvalidArgument);
  EXPECT_THROW((void)add_process_set({-1}), InvalidArgument);
  EXPECT_THAT(thrown_by<InvalidArgument>([&] {
                (void)add_process_set({0, n_});
              }).what(),
              HasSubstr("rank " + std::to_string(n_) + " is not one of"));
  EXPECT_THROW(remove_process_set(world()), InvalidArgument);
  expect_usable();
}

TEST_F(ProcessSets, DifferentRanksAreAMismatchOnAll) {
  if (n_ == 1) GTEST_SKIP() << "one rank cannot disagree";
  const auto error = thrown_by<Mismatch>([&] { (void)add_process_set({me_ == 0 ? 0 : 1}); });
  EXPECT_EQ(error.ranks(), ranks());
  EXPECT_THAT(error.what(), HasSubstr("0 on rank 0"));
  EXPECT_EQ(add_process_set({0}).ranks(), std::vector{0});
}

TEST_F(ProcessSets, RemovingDifferentOnesIsAMismatchOnAll) {
  if (n_ < 3) GTEST_SKIP() << "needs two sets beside the world";
  const ProcessSet a = add_process_set({0});
  const ProcessSet b = add_process_set({1});
  EXPECT_THROW(remove_process_set(me_ == 0 ? a : b), Mismatch);
  if (a.rank() >= 0) expect_sum(a);
  if (b.rank() >= 0) expect_sum(b);
  remove_process_set(a);
}

TEST_F(ProcessSets, ARemovedOneIsRefused) {
  const ProcessSet set = add_process_set({0});
  const ProcessSet copy = set;
  remove_process_set(set);
  float value = 1.0F;
  const auto error =
      thrown_by<InvalidArgument>([&] { allreduce(value, {.name = "late", .process_set = copy}); });
  EXPECT_EQ(error.tensor(), "late");
  EXPECT_THAT(error.what(), HasSubstr("was removed"));
  EXPECT_THROW(remove_process_set(set), InvalidArgument);
  EXPECT_EQ(set.ranks(), std::vector{0});
  const ProcessSet again = add_process_set({0});
  EXPECT_NE(again, set);
  if (me_ == 0) expect_sum(again);
}

TEST_F(ProcessSets, OneThatOthersRemoveWhileARankHasJoinedIsRefusedThere) {
  const ProcessSet set = add_process_set({0});
  if (me_ != 0 || n_ == 1) remove_process_set(set);
  join();
  float value = 1.0F;
  if (me_ == 0) {
    EXPECT_THAT(thrown_by<InvalidArgument>([&] { allreduce(value, {.process_set = set}); }).what(),
                HasSubstr("was removed"));
  }
  expect_usable();
}

TEST_F(ProcessSets, WhatIsPendingInARemovedOneFailsOnThoseWhoSubmittedIt) {
  if (n_ < 3) GTEST_SKIP() << "needs two ranks in a set beside the world";
  const ProcessSet set = add_process_set({0, 1});
  std::vector<float> tensor(8, 1.0F);
  Future<void> pending;
  if (me_ == 0) pending = allreduce_async(tensor, {.name = "pending", .process_set = set});
  remove_process_set(set);
  if (me_ == 0) {
    const auto error = thrown_by<ShutDown>([&] { pending.wait(); });
    EXPECT_EQ(error.tensor(), "pending");
    EXPECT_THAT(error.what(), HasSubstr("\"pending\""));
    EXPECT_THAT(tensor, Each(1.0F));
  }
  expect_usable();
}

TEST_F(ProcessSets, MayBeMadeAndRemovedAgainAndAgain) {
  for (int round = 0; round < 30; ++round) {
    const ProcessSet set = add_process_set({round % n_});
    if (set.rank() >= 0) expect_sum(set);
    remove_process_set(set);
  }
  expect_usable();
}

TEST(ProcessSetsOfAnEarlierSession, AreRefused) {
  init();
  const ProcessSet set = add_process_set({0});
  shutdown();
  EXPECT_THROW((void)world().size(), NotInitialized);
  EXPECT_THROW((void)add_process_set({0}), NotInitialized);
  init();
  EXPECT_THAT(thrown_by<InvalidArgument>([&] { barrier(set); }).what(),
              HasSubstr("an earlier session"));
  EXPECT_THROW(remove_process_set(set), InvalidArgument);
  EXPECT_EQ(add_process_set({0}).ranks(), std::vector{0});
  shutdown();
}

}  // namespace
}  // namespace kolo::internal
