// SPDX-License-Identifier: Apache-2.0
// broadcast: all ranks get the root's tensor.
#include "fixture.hpp"

namespace kolo::internal {
namespace {

using testing::Each;

template <typename T>
class BroadcastOf : public WithSession {};
TYPED_TEST_SUITE(BroadcastOf, AllTypes);

TYPED_TEST(BroadcastOf, EveryTypeFromEveryRoot) {
  for (int root = 0; root < this->n_; ++root) {
    std::vector<Stored<TypeParam>> tensor(33, make<Stored<TypeParam>>(this->me_ == root));
    broadcast(view_of<TypeParam>(tensor), root);
    EXPECT_THAT(values_of(tensor), Each(1.0)) << "from " << root;
  }
}

using Broadcast = WithSession;

TEST_F(Broadcast, OutOfPlaceReadsTheRootsInputOnly) {
  for (int root = 0; root < n_; ++root) {
    const std::vector<double> input(20, 1.0 + me_);
    std::vector<double> output(20, -1.0);
    broadcast(input, output, root);
    EXPECT_THAT(output, Each(1.0 + root));
    EXPECT_THAT(input, Each(1.0 + me_));
    output.assign(20, -1.0);
    broadcast_async(input, output, root, {.name = "async"}).get();
    EXPECT_THAT(output, Each(1.0 + root));
  }
}

TEST_F(Broadcast, OfScalarsMatricesAndNothing) {
  for (int root = 0; root < n_; ++root) {
    bool flag = me_ == root;
    broadcast(flag, root);
    EXPECT_TRUE(flag);
    std::vector<std::int16_t> matrix(12, static_cast<std::int16_t>(me_));
    broadcast(TensorView(matrix.data(), {3, 2, 2}), root);
    EXPECT_THAT(matrix, Each(root));
    std::vector<float> none;
    broadcast(none, root);
    broadcast(TensorView(static_cast<float*>(nullptr), {7, 0}), root);
    EXPECT_TRUE(none.empty());
  }
}

TEST_F(Broadcast, OfLargeTensors) {
  std::vector<std::uint32_t> tensor((1U << 20U) + 7);
  for (int root = 0; root < n_; ++root) {
    for (std::size_t i = 0; i < tensor.size(); ++i)
      tensor[i] = static_cast<std::uint32_t>(me_ == root ? i + static_cast<std::size_t>(root) : 0);
    broadcast(tensor, root);
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < tensor.size(); ++i)
      wrong += tensor[i] != i + static_cast<std::size_t>(root);
    EXPECT_EQ(wrong, 0U);
  }
}

TEST_F(Broadcast, OfTextResizesTheOthers) {
  for (int root = 0; root < n_; ++root) {
    const std::string sent = "from " + std::string(static_cast<std::size_t>(root) * 1000, 'x');
    std::string text = me_ == root ? sent : std::string(static_cast<std::size_t>(me_) * 7, 'y');
    broadcast(text, root);
    EXPECT_EQ(text, sent);
    std::string empty = me_ == root ? "" : "not empty";
    broadcast_async(empty, root, {.name = "empty"}).wait();
    EXPECT_EQ(empty, "");
  }
}

TEST_F(Broadcast, SeveralRootsAtATime) {
  std::vector<std::vector<std::int64_t>> tensors;
  std::vector<Future<void>> futures;
  for (int i = 0; i < 3 * n_; ++i) tensors.emplace_back(100, me_);
  for (int k = 0; k < 3 * n_; ++k) {
    const int i = me_ % 2 == 0 ? k : 3 * n_ - 1 - k;
    futures.push_back(
        broadcast_async(tensors[static_cast<std::size_t>(i)], i % n_, {.name = std::to_string(i)}));
  }
  for (Future<void>& future : futures) future.get();
  for (int i = 0; i < 3 * n_; ++i) EXPECT_THAT(tensors[static_cast<std::size_t>(i)], Each(i % n_));
}

using Barrier = WithSession;

// Rank 0 enters the barrier only when all others' futures are known to wait for it.
TEST_F(Barrier, WaitsForTheLastRank) {
  for (int late = 0; late < n_; ++late) {
    Future<void> future;
    if (me_ != late) future = barrier_async({.name = "late"});
    std::vector<std::uint8_t> waiting{future.valid() && !future.ready() ? std::uint8_t{1}
                                                                        : std::uint8_t{0}};
    allreduce(waiting, {.name = "who waits", .op = ReduceOp::sum});
    EXPECT_EQ(waiting.front(), n_ - 1);
    if (me_ == late) {
      barrier({.name = "late"});
    } else {
      future.wait();
    }
  }
}

TEST_F(Barrier, GoesTogetherWithOtherOperations) {
  for (int round = 0; round < 20; ++round) {
    std::int32_t value = me_;
    Future<void> pending = allreduce_async(value, {.op = ReduceOp::sum});
    barrier();
    barrier({.name = "named"});
    barrier(world());
    pending.wait();
    EXPECT_EQ(value, rank_sum_);
  }
}

}  // namespace
}  // namespace kolo::internal
