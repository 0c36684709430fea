// Collectives through the whole library, at any number of ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <thread>

#include "kolo/kolo.hpp"

namespace kolo {
namespace {

using testing::Each;
using testing::HasSubstr;

class Collectives : public testing::Test {
 protected:
  Session session_;
  const int n_ = size();
  const int me_ = rank();
  const int rank_sum_ = n_ * (n_ - 1) / 2;
};

TEST_F(Collectives, AllreduceAveragesUnlessToldOtherwise) {
  std::vector<float> tensor(1000, static_cast<float>(me_));
  allreduce(tensor);
  EXPECT_THAT(tensor, Each(static_cast<float>(rank_sum_) / static_cast<float>(n_)));
  std::int64_t scalar = 100 + me_;
  allreduce(scalar, {.op = ReduceOp::sum});
  EXPECT_EQ(scalar, 100 * n_ + rank_sum_);
}

TEST_F(Collectives, ScalesAreAppliedBeforeAndAfter) {
  std::vector<double> tensor(10, me_ + 1.0);
  allreduce(tensor, {.op = ReduceOp::sum, .prescale = 0.5, .postscale = 4.0});
  EXPECT_THAT(tensor, Each(2.0 * (rank_sum_ + n_)));
}

TEST_F(Collectives, TensorsWithoutElementsWork) {
  std::vector<float> none;
  allreduce(none, {.name = "none"});
  broadcast(none, 0);
  EXPECT_TRUE(none.empty());
}

TEST_F(Collectives, NamedOperationsMayComeInAnyOrder) {
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

TEST_F(Collectives, ABufferGivenAwayComesBack) {
  Future<std::vector<float>> owned =
      allreduce_async(std::vector<float>(16, 1.0F), {.name = "owned", .op = ReduceOp::sum});
  EXPECT_THAT(owned.get(), Each(static_cast<float>(n_)));
  EXPECT_FALSE(owned.valid());
  EXPECT_THROW(owned.wait(), InvalidArgument);
}

TEST_F(Collectives, BroadcastsTensorsScalarsAndText) {
  for (int root = 0; root < n_; ++root) {
    std::vector<std::int16_t> tensor(33, static_cast<std::int16_t>(me_));
    broadcast(tensor, root);
    EXPECT_THAT(tensor, Each(root));
    bool flag = me_ == root;
    broadcast(flag, root);
    EXPECT_TRUE(flag);
    std::string text = me_ == root ? "from " + std::to_string(root)
                                   : std::string(static_cast<std::size_t>(me_) * 7, 'x');
    broadcast(text, root);
    EXPECT_EQ(text, "from " + std::to_string(root));
    std::string empty = me_ == root ? "" : "not empty";
    Future<void> future = broadcast_async(empty, root, {.name = "empty"});
    future.wait();
    EXPECT_EQ(empty, "");
  }
}

TEST_F(Collectives, AMismatchIsAnswerToAllAndTheSessionGoesOn) {
  if (n_ == 1) GTEST_SKIP() << "one rank cannot disagree";
  for (int round = 0; round < 3; ++round) {
    std::vector<float> odd(me_ == 0 ? 7 : 8, 1.0F);
    try {
      allreduce(odd, {.name = "odd"});
      ADD_FAILURE() << "no Mismatch";
    } catch (const Mismatch& error) {
      EXPECT_EQ(error.tensor(), "odd");
      EXPECT_EQ(error.ranks().size(), static_cast<std::size_t>(n_));
      EXPECT_THAT(error.what(), HasSubstr("\"odd\""));
      EXPECT_THAT(error.what(), HasSubstr("[7] on rank 0"));
      EXPECT_THAT(error.what(), HasSubstr("[8] on rank"));
    }
    EXPECT_THAT(odd, Each(1.0F));
    allreduce(odd.front(), {.name = "even"});
  }
}

TEST_F(Collectives, OtherDisagreementsAreAnsweredToo) {
  if (n_ == 1) GTEST_SKIP() << "one rank cannot disagree";
  std::vector<float> floats(4);
  std::vector<std::int32_t> integers(4);
  const TensorView view = me_ == 0 ? TensorView(floats) : TensorView(integers);
  EXPECT_THROW(allreduce(view, {.name = "x"}), Mismatch);
  EXPECT_THROW(allreduce(floats, {.name = "x", .op = me_ == 0 ? ReduceOp::sum : ReduceOp::average}),
               Mismatch);
  EXPECT_THROW(broadcast(floats, me_ == 0 ? 0 : 1, {.name = "x"}), Mismatch);
  EXPECT_THROW(me_ == 0 ? allreduce(floats, {.name = "x"}) : barrier({.name = "x"}), Mismatch);
  barrier();
}

TEST_F(Collectives, WrongArgumentsAreRefusedLocally) {
  std::vector<float> tensor(4);
  if (me_ == 0) {
    EXPECT_THROW(broadcast(tensor, n_, {.name = "b"}), InvalidArgument);
    EXPECT_THROW(broadcast(tensor, -1, {.name = "b"}), InvalidArgument);
    EXPECT_THROW(allreduce(TensorView(tensor.data(), {-4}), {.name = "b"}), InvalidArgument);
    EXPECT_THROW(allreduce(TensorView(static_cast<float*>(nullptr), {4})), InvalidArgument);
    EXPECT_THROW(allreduce(TensorView(tensor.data(), {4}, {DeviceType::cuda, 0})), InvalidArgument);
    EXPECT_THROW(allreduce(tensor, {.prescale = 1.0 / 0.0}), InvalidArgument);
    bool flag = true;
    EXPECT_THROW(allreduce(flag, {.name = "b"}), InvalidArgument);
  }
  broadcast(tensor, 0, {.name = "b"});  // nothing was submitted above
}

TEST_F(Collectives, ADuplicateNameIsRefusedAndChangesNothing) {
  std::vector<float> tensor(4, 1.0F);
  std::vector<float> other(4, 1.0F);
  if (n_ == 1) GTEST_SKIP() << "alone, an operation does not stay pending";
  // Rank 0's stays pending until the others submit theirs, after they have heard from rank 0.
  if (me_ == 0) {
    Future<void> first = allreduce_async(tensor, {.name = "twice", .op = ReduceOp::sum});
    try {
      allreduce(other, {.name = "twice"});
      ADD_FAILURE() << "no DuplicateName";
    } catch (const DuplicateName& error) {
      EXPECT_EQ(error.tensor(), "twice");
      EXPECT_THAT(error.what(), HasSubstr("\"twice\""));
    }
    barrier({.name = "go"});
    first.wait();
  } else {
    barrier({.name = "go"});
    allreduce(tensor, {.name = "twice", .op = ReduceOp::sum});
  }
  EXPECT_THAT(tensor, Each(static_cast<float>(n_)));
}

TEST_F(Collectives, ManyThreadsMaySubmitNamedOperations) {
  constexpr int threads = 4;
  std::vector<std::thread> workers;
  std::vector<int> wrong(threads, 0);
  for (int t = 0; t < threads; ++t) {
    workers.emplace_back([&, t] {
      for (int i = 0; i < 50; ++i) {
        std::int64_t value = me_ + i;
        allreduce(value, {.name = "thread" + std::to_string(t), .op = ReduceOp::sum});
        if (value != rank_sum_ + i * n_) ++wrong[static_cast<std::size_t>(t)];
      }
    });
  }
  for (std::thread& worker : workers) worker.join();
  EXPECT_THAT(wrong, Each(0));
}

TEST_F(Collectives, FuturesMayBeDroppedAndAskedInAnyWay) {
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

}  // namespace
}  // namespace kolo
