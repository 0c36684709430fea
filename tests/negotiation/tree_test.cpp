// SPDX-License-Identifier: Apache-2.0
#include "negotiation/protocol/tree.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace kolo::internal::negotiation {
namespace {

TEST(Tree, RanksOfANodeHangUnderTheirLeader) {
  const std::vector<int> node_of = {5, 5, 9, 5, 9};
  const std::vector<TreePosition> places = build_tree(node_of);
  EXPECT_EQ(places[0].parent, -1);
  EXPECT_EQ(places[1].parent, 0);
  EXPECT_EQ(places[2].parent, 0);  // the other leader
  EXPECT_EQ(places[3].parent, 0);
  EXPECT_EQ(places[4].parent, 2);
  EXPECT_EQ(places[2].below(), 2);
  EXPECT_EQ(places[0].below(), 5);
}

TEST(Tree, LeadersHaveAtMostArityLeadersBelow) {
  std::vector<int> node_of(1000);
  for (std::size_t rank = 0; rank < node_of.size(); ++rank) node_of[rank] = static_cast<int>(rank);
  for (const TreePosition& place : build_tree(node_of, 4)) EXPECT_LE(place.children.size(), 4U);
}

TEST(Tree, EverySubtreeListsItsRanksOnce) {
  std::mt19937 random(2);
  for (int round = 0; round < 50; ++round) {
    std::vector<int> node_of(1 + random() % 60);
    for (int& node : node_of) node = static_cast<int>(random() % 9);
    const std::vector<TreePosition> places =
        build_tree(node_of, 1 + static_cast<int>(random() % 5));
    for (const TreePosition& place : places) {
      EXPECT_EQ(place.ranks, static_cast<int>(node_of.size()));
      RankSet all = RankSet::of(place.rank);
      for (const Child& child : place.children) {
        const TreePosition& below = places[static_cast<std::size_t>(child.rank)];
        EXPECT_EQ(below.parent, place.rank);
        EXPECT_EQ(below.below(), child.ranks.count());
        EXPECT_GT(child.rank, place.rank);
        all.insert(child.ranks);
      }
      EXPECT_EQ(all.count(), place.below());
    }
    EXPECT_EQ(places[0].below(), static_cast<int>(node_of.size()));
  }
}

}  // namespace
}  // namespace kolo::internal::negotiation
