// SPDX-License-Identifier: Apache-2.0
// The cost of agreement per rank grows with the depth of the tree, not with the number of ranks.
// The tests compare counts, which do not depend on the machine's speed.
#include "scale.hpp"

#include <gtest/gtest.h>

namespace kolo::internal::simulation {
namespace {

constexpr int tensors = 24;

std::vector<Gradient> gradients() {
  std::vector<Gradient> some;
  for (int i = 0; i < tensors; ++i)
    some.push_back(
        {"layer" + std::to_string(i / 2) + (i % 2 == 0 ? ".weight" : ".bias"), Shape(64 + i, 32)});
  return some;
}

/// The depth of the tree of leaders with `arity` children each, above the ranks of their hosts.
int depth(int ranks, const ClusterModel& model) {
  int levels = 1;
  int hosts = (ranks + model.ranks_per_host - 1) / model.ranks_per_host;
  for (int position = hosts - 1; position > 0; position = (position - 1) / model.arity) ++levels;
  return levels;
}

class Scale : public testing::TestWithParam<int> {};

TEST_P(Scale, ARankHasOnlyItsNeighboursToTalkTo) {
  const ClusterModel model;
  const std::vector<StepCost> costs = cost_of_tree(gradients(), GetParam(), model);
  const int neighbors = model.arity + model.ranks_per_host;
  for (const StepCost& cost : costs) {
    const std::int64_t operations = cost.step == "one" ? 1 : tensors;
    // An operation makes at most one message on each edge upwards, and one downwards.
    EXPECT_LE(cost.max_messages, 2 * operations * neighbors) << cost.step;
    EXPECT_LE(cost.root.messages(), 2 * operations * (neighbors - 1)) << cost.step;
    EXPECT_LE(cost.batches, static_cast<std::uint64_t>(operations)) << cost.step;
  }
}

TEST_P(Scale, BytesGrowWithTheDepthOfTheTree) {
  const ClusterModel model;
  const std::vector<StepCost> costs = cost_of_tree(gradients(), GetParam(), model);
  const int neighbors = model.arity + model.ranks_per_host;
  for (const StepCost& cost : costs) {
    const std::int64_t operations = cost.step == "one" ? 1 : tensors;
    // A rank's own share, and a range of ranks for each level below where a name is new.
    const std::int64_t each = cost.step == "first" ? 400 + 16 * depth(GetParam(), model) : 160;
    EXPECT_LE(cost.max_bytes, 2 * operations * neighbors * each) << cost.step;
    EXPECT_GE(cost.root.bytes(), 32 * operations) << cost.step;
  }
}

TEST_P(Scale, AnAgreementGoesUpTheTreeAndDownAgain) {
  const ClusterModel model;
  const std::vector<StepCost> costs = cost_of_tree(gradients(), GetParam(), model);
  EXPECT_EQ(costs.back().step, "one");
  EXPECT_EQ(costs.back().hops, 2 * depth(GetParam(), model));
}

INSTANTIATE_TEST_SUITE_P(Of, Scale, testing::Values(16, 64, 256, 1024));

TEST(Star, CostsItsCentreTwoMessagesForEachRank) {
  for (const int ranks : {16, 256}) {
    const std::vector<StepCost> costs = cost_of_star(gradients(), ranks, ClusterModel());
    ASSERT_EQ(costs.back().step, "one");
    EXPECT_EQ(costs.back().root.messages(), 2 * (ranks - 1));
  }
}

}  // namespace
}  // namespace kolo::internal::simulation
