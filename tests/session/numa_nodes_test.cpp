// SPDX-License-Identifier: Apache-2.0
// Many ranks on a host with two made-up NUMA nodes: even ranks are on one, odd ranks on the other.
// numa_nodes.sh starts it.
#include <algorithm>
#include <functional>
#include <span>

#include "fixture.hpp"

namespace kolo::internal {
namespace {

class NumaNodes : public WithSession {
 protected:
  void SetUp() override { ASSERT_GT(n_, 8) << "fewer ranks are not divided by node"; }

  /// In the order of the ranks, the large numbers cancel before the ones come. In the order of the
  /// nodes, the ones of each node come after its large number, and are lost.
  [[nodiscard]] float own() const { return me_ == 0 ? large : me_ == 1 ? -large : 1.0F; }
  static constexpr float large = 1e9F;
  static constexpr float expected = 0.0F;

  template <typename Vector>
  void expect_order_of_nodes(const Vector& vector) const {
    EXPECT_EQ(std::ranges::count(vector, expected), std::ssize(vector));
  }
};

TEST_F(NumaNodes, AreReducedOneByOne) {
  for (const std::size_t length : {1U, 10U, 5000U, 1000000U}) {
    std::vector<float> tensor(length, own());
    SharedVector<float> shared(length, own());
    allreduce(tensor, {.op = ReduceOp::sum});
    allreduce(shared, {.op = ReduceOp::sum});
    expect_order_of_nodes(tensor);
    expect_order_of_nodes(shared);
    const std::vector<float> input(length * static_cast<std::size_t>(n_), own());
    expect_order_of_nodes(reducescatter(input, {.op = ReduceOp::sum}));
  }
}

TEST_F(NumaNodes, StepsRepeat) {
  std::vector<std::vector<float>> tensors(5);
  for (int step = 0; step < 30; ++step) {
    std::vector<Future<void>> futures;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      tensors[i].assign(1 + 40'000 * i, own());
      futures.push_back(allreduce_async(
          tensors[i], {.name = "tensor " + std::to_string(i), .op = ReduceOp::sum}));
    }
    for (Future<void>& future : futures) future.get();
    for (const std::vector<float>& tensor : tensors) expect_order_of_nodes(tensor);
  }
  EXPECT_GT(statistics().plan_batches, 0U);
}

/// Too few ranks to be divided.
TEST_F(NumaNodes, OfAProcessSetAreOneLevel) {
  const ProcessSet four = add_process_set({0, 1, 2, 3});
  if (me_ < 4) {
    std::vector<float> tensor(100'000, own());
    allreduce(tensor, {.op = ReduceOp::sum, .process_set = four});
    EXPECT_EQ(std::ranges::count(tensor, 2.0F), std::ssize(tensor));
  }
  barrier();
}

TEST_F(NumaNodes, JoinedRanksAreMissing) {
  if (me_ == last_) {
    join();
    return;
  }
  std::vector<float> tensor(100'000, own());
  allreduce(tensor, {.name = "tensor", .op = ReduceOp::sum});
  expect_order_of_nodes(tensor);
  join();
}

TEST_F(NumaNodes, OtherCollectives) {
  std::vector<std::int64_t> mine(1000, me_);
  const Gathered<std::int64_t> all = allgather(mine);
  ASSERT_EQ(std::ssize(all.values), 1000 * n_);
  for (int rank = 0; rank < n_; ++rank) EXPECT_EQ(all.values[std::size_t(1000 * rank + 999)], rank);
  broadcast(mine, last_);
  EXPECT_EQ(mine[500], last_);
  expect_usable();
}

}  // namespace
}  // namespace kolo::internal
