// SPDX-License-Identifier: Apache-2.0
// join: ranks that have no more data, while the others continue.
#include "../support/world.hpp"
#include "fixture.hpp"

namespace kolo::internal {
namespace {

using testing::Each;
using testing::HasSubstr;

class Join : public WithSession {
 protected:
  /// Rank `first` joins. The others do `work` first: none of it can be done before `first` has
  /// joined.
  template <typename Work>
  void without(int first, Work work) {
    if (me_ != first) work();
    joined_last_ = join();
  }

  /// `join` must have returned a rank that joined last, the same one on all ranks.
  void expect_last_to_join(int first) const {
    if (n_ > 1) {
      EXPECT_NE(joined_last_, first);
    }
    std::int64_t told = joined_last_;
    broadcast(told, 0);
    EXPECT_EQ(told, joined_last_);
    EXPECT_GE(joined_last_, 0);
    EXPECT_LT(joined_last_, n_);
  }

  int joined_last_ = -1;
};

TEST_F(Join, OfAllAtOnceAgainAndAgain) {
  for (int round = 0; round < 10; ++round) {
    int last = join();
    EXPECT_GE(last, 0);
    EXPECT_LT(last, n_);
    const int mine = last;
    broadcast(last, 0);
    EXPECT_EQ(last, mine);
    expect_usable();
  }
}

TEST_F(Join, ReturnsTheLastRankToJoin) {
  for (int last = 0; last < n_; ++last) {
    if (me_ == last) {  // can gather nothing before the others have joined
      const std::vector<std::int32_t> mine{me_};
      EXPECT_EQ(allgather(mine).values, mine);
    }
    EXPECT_EQ(join(), last);
  }
}

TEST_F(Join, ThatIsRefusedDoesNotRestartTheNumbersOfUnnamedOperations) {
  if (n_ < 3) GTEST_SKIP() << "no set would be without the rank that leaves";
  const ProcessSet set = add_process_set({0, 1});
  if (me_ == last_) return shutdown();
  EXPECT_THROW(barrier({.name = "of the world"}), PeerLeft);
  if (!set.contains(me_)) return;
  std::vector<double> first(4, me_ + 1.0);
  std::vector<double> second(4, 10.0 * (me_ + 1));
  const AllreduceOptions unnamed{.op = ReduceOp::sum, .process_set = set};
  const BarrierOptions go{.name = "go", .process_set = set};
  if (me_ == 1) {
    Future<void> pending = allreduce_async(first, unnamed);
    EXPECT_THROW((void)join(), PeerLeft);
    Future<void> next = allreduce_async(second, unnamed);
    barrier(go);
    pending.wait();
    next.wait();
  } else {
    barrier(go);
    allreduce(first, unnamed);
    allreduce(second, unnamed);
  }
  EXPECT_THAT(first, Each(3.0));
  EXPECT_THAT(second, Each(30.0));
}

TEST_F(Join, AnAverageDividesByAllOrByThosePresent) {
  if (n_ == 1) GTEST_SKIP() << "nobody would be there";
  for (int first = 0; first < n_; ++first) {
    without(first, [&] {
      for (int round = 0; round < 3; ++round) {  // the third time by its slot
        std::vector<double> over_all(100, me_ + 1.0);
        std::vector<double> over_present(100, me_ + 1.0);
        std::vector<std::int64_t> sum(7, me_ + 1);
        allreduce(over_all, {.name = "all"});
        allreduce(over_present, {.name = "present", .average_over = AverageOver::present});
        allreduce(sum, {.name = "sum", .op = ReduceOp::sum});
        const double of_present = rank_sum_ + n_ - (first + 1);
        EXPECT_THAT(over_all, Each(of_present / n_));
        EXPECT_THAT(over_present, Each(of_present / last_));
        EXPECT_THAT(sum, Each(of_present));
      }
    });
    expect_last_to_join(first);
  }
}

TEST_F(Join, OtherReductionsAreOfThosePresent) {
  if (n_ == 1) GTEST_SKIP() << "nobody would be there";
  for (int first = 0; first < n_; ++first) {
    without(first, [&] {
      std::vector<float> tensor(5, static_cast<float>(me_ + 2));
      allreduce(tensor, {.op = ReduceOp::min});
      EXPECT_THAT(tensor, Each(first == 0 ? 3.0F : 2.0F));
      tensor.assign(5, static_cast<float>(me_ + 2));
      allreduce(tensor, {.op = ReduceOp::max});
      EXPECT_THAT(tensor, Each(static_cast<float>(first == last_ ? n_ : n_ + 1)));
      tensor.assign(5, 2.0F);
      allreduce(tensor, {.op = ReduceOp::product});
      EXPECT_THAT(tensor, Each(static_cast<float>(1 << last_)));
      std::vector<float> a(5, 1.0F);
      std::int32_t b = 1;
      grouped_allreduce({a, b}, {.op = ReduceOp::sum});
      EXPECT_THAT(a, Each(static_cast<float>(last_)));
      EXPECT_EQ(b, last_);
      std::vector<double> parallel(5, 4.0);
      allreduce(parallel, {.op = ReduceOp::adasum});
      EXPECT_THAT(parallel, Each(testing::DoubleNear(4.0, 1e-12)));
      barrier();
    });
    expect_last_to_join(first);
  }
}

TEST_F(Join, AnAllgatherHasNoRowsOfTheAbsent) {
  if (n_ == 1) GTEST_SKIP() << "nobody would be there";
  for (int first = 0; first < n_; ++first) {
    without(first, [&] {
      for (int round = 0; round < 3; ++round) {
        const std::vector<std::int32_t> mine(static_cast<std::size_t>(me_ + 1), me_);
        const Gathered<std::int32_t> gathered = allgather(mine, {.name = "rows"});
        std::vector<std::int32_t> expected;
        for (int rank = 0; rank < n_; ++rank) {
          const int rows = rank == first ? 0 : rank + 1;
          EXPECT_EQ(gathered.counts[static_cast<std::size_t>(rank)], rows);
          expected.insert(expected.end(), static_cast<std::size_t>(rows), rank);
        }
        EXPECT_EQ(gathered.values, expected);
        EXPECT_EQ(allgather("r" + std::to_string(me_))[static_cast<std::size_t>(first)], "");
      }
    });
    expect_last_to_join(first);
  }
}

TEST_F(Join, WhatHasNoMeaningWithoutTheAbsentFailsOnThoseWhoAsked) {
  if (n_ == 1) GTEST_SKIP() << "nobody would be there";
  for (int first = 0; first < n_; ++first) {
    const std::vector<float> input(static_cast<std::size_t>(n_), 1.0F);
    const auto fail = [&](auto call, const std::string& name) {
      const auto error = thrown_by<Mismatch>(call);
      EXPECT_EQ(error.tensor(), name);
      EXPECT_EQ(error.ranks(), std::vector{first});
      EXPECT_THAT(error.what(), HasSubstr("rank " + std::to_string(first)));
      EXPECT_THAT(error.what(), HasSubstr("joined"));
    };
    for (int round = 0; round < 3; ++round) {  // known by their slots once all have done them
      if (round > 0) {
        (void)alltoall(input, {.name = "alltoall"});
        (void)reducescatter(input, {.name = "reducescatter"});
      }
      without(first, [&] {
        float value = static_cast<float>(me_);
        std::string text = "unchanged";
        fail([&] { (void)alltoall(input, {.name = "alltoall"}); }, "alltoall");
        fail([&] { (void)reducescatter(input, {.name = "reducescatter"}); }, "reducescatter");
        fail([&] { broadcast(value, first, {.name = "broadcast"}); }, "broadcast");
        fail([&] { broadcast(text, first, {.name = "text"}); }, "text");
        EXPECT_EQ(value, static_cast<float>(me_));
        EXPECT_EQ(text, "unchanged");
        const int root = first == 0 ? last_ : 0;
        broadcast(value, root, {.name = "broadcast"});
        EXPECT_EQ(value, static_cast<float>(root));
      });
      expect_last_to_join(first);
    }
  }
}

TEST_F(Join, AMismatchAmongThosePresentIsAnswered) {
  if (n_ < 3) GTEST_SKIP() << "two must be there to disagree";
  without(0, [&] {
    std::vector<float> tensor(me_ == 1 ? 3 : 4);
    const auto error = thrown_by<Mismatch>([&] { allreduce(tensor, {.name = "odd"}); });
    std::vector<int> present = ranks();
    present.erase(present.begin());
    EXPECT_EQ(error.ranks(), present);
    EXPECT_THAT(error.what(), HasSubstr("[3] on rank 1"));
  });
  expect_usable();
}

TEST_F(Join, TheAbsentMaySubmitNothing) {
  if (n_ == 1) GTEST_SKIP() << "alone, all have joined at once";
  Future<int> joined;
  if (me_ == 0) {
    joined = join_async();
    float value = 1.0F;
    const auto error = thrown_by<InvalidArgument>([&] { allreduce(value, {.name = "after"}); });
    EXPECT_EQ(error.tensor(), "after");
    EXPECT_EQ(error.ranks(), std::vector{0});
    EXPECT_THROW((void)allgather(std::string()), InvalidArgument);
    EXPECT_THROW((void)join(), InvalidArgument);
    EXPECT_THROW((void)add_process_set({0}), InvalidArgument);
  }
  wait_for_all();  // the others join when all was refused
  if (me_ != 0) joined = join_async();
  (void)joined.get();
  expect_usable();
}

TEST_F(Join, WhatWasSubmittedBeforeIsDone) {
  for (int round = 0; round < 20; ++round) {
    for (int joiner = 0; joiner < n_; ++joiner) {
      std::vector<double> tensor(10, me_);
      Future<void> before = allreduce_async(tensor, {.name = "before", .op = ReduceOp::sum});
      if (me_ == joiner) (void)join();  // at once
      before.wait();
      EXPECT_THAT(tensor, Each(rank_sum_));
      if (me_ != joiner) (void)join();
    }
  }
}

TEST_F(Join, OperationsWithoutANameCountFromTheStartAgain) {
  for (int round = 0; round < 3; ++round) {
    // Rank r has r + 1 batches: the others have met operations that it has not.
    for (int batch = 0; batch <= me_; ++batch) {
      std::int64_t present = 1;
      allreduce(present, {.op = ReduceOp::sum});
      EXPECT_EQ(present, n_ - batch);
    }
    (void)join();
    std::int64_t value = me_;
    allreduce(value, {.op = ReduceOp::sum});
    EXPECT_EQ(value, rank_sum_);
  }
}

TEST_F(Join, UnevenBatchesInEpochs) {
  for (int epoch = 0; epoch < 4; ++epoch) {
    const auto batches = [&](int rank) { return 3 + (rank + epoch) % n_; };
    for (int batch = 0; batch < batches(me_); ++batch) {
      std::vector<Future<void>> futures;
      std::vector<std::vector<double>> gradients;
      for (int i = 0; i < 5; ++i) gradients.emplace_back(i + 1, me_ + 1.0);
      for (std::size_t i = 0; i < 5; ++i)
        futures.push_back(allreduce_async(gradients[i], {.name = "gradient" + std::to_string(i),
                                                         .average_over = AverageOver::present}));
      for (Future<void>& future : futures) future.wait();
      int present = 0;
      double sum = 0.0;
      for (int rank = 0; rank < n_; ++rank) {
        if (batches(rank) <= batch) continue;
        ++present;
        sum += rank + 1.0;
      }
      for (const std::vector<double>& gradient : gradients)
        EXPECT_THAT(gradient, Each(sum / present));
    }
    (void)join();
    barrier();
  }
}

TEST_F(Join, IsOfAllSets) {
  if (n_ < 3) GTEST_SKIP() << "needs a set of which one may be absent";
  const ProcessSet set = add_process_set({0, 1});
  without(0, [&] {
    if (set.rank() < 0) return;
    double value = 6.0;
    allreduce(value, {.name = "half", .process_set = set});
    EXPECT_EQ(value, 3.0);
    const std::vector<std::int32_t> mine(1);
    EXPECT_EQ(allgather(mine, {.process_set = set}).counts, (std::vector<std::int64_t>{0, 1}));
    EXPECT_THROW(broadcast(value, 0, {.process_set = set}), Mismatch);
  });
  expect_usable();
}

}  // namespace
}  // namespace kolo::internal
