// SPDX-License-Identifier: Apache-2.0
// The trees along which broadcasts travel.
#include "backend/mpi/tree.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <vector>

namespace kolo::internal::backend::mpi {
namespace {

/// Follows the children from the root: the number of messages in sequence until the last has the
/// data, if each is sent at once. Checks that each participant is reached once, by its parent.
int depth_of(const std::vector<Tree>& trees, int root) {
  std::vector<int> depth(trees.size(), -1);
  std::vector<int> reached{root};
  depth[static_cast<std::size_t>(root)] = 0;
  EXPECT_EQ(trees[static_cast<std::size_t>(root)].parent, -1);
  for (std::size_t i = 0; i < reached.size(); ++i) {
    const int own = reached[i];
    for (const int child : trees[static_cast<std::size_t>(own)].children) {
      const auto place = static_cast<std::size_t>(child);
      EXPECT_EQ(trees[place].parent, own);
      EXPECT_EQ(depth[place], -1);
      depth[place] = depth[static_cast<std::size_t>(own)] + 1;
      reached.push_back(child);
    }
  }
  EXPECT_EQ(reached.size(), trees.size());
  return *std::ranges::max_element(depth);
}

template <typename Use>
void for_all_roots(Use use) {
  for (int size = 1; size <= 70; ++size)
    for (int root = 0; root < size; ++root) {
      SCOPED_TRACE(testing::Message() << size << " participants, root " << root);
      use(root, size);
      if (testing::Test::HasFailure()) return;
    }
}

TEST(BinomialTree, ReachesAllInFewSteps) {
  for_all_roots([](int root, int size) {
    std::vector<Tree> trees;
    for (int own = 0; own < size; ++own) trees.push_back(binomial_tree(own, root, size));
    EXPECT_LE(depth_of(trees, root), std::bit_width(static_cast<unsigned>(size)));
  });
}

TEST(TwoTrees, EachReachesAllInFewSteps) {
  for_all_roots([](int root, int size) {
    for (const std::size_t tree : {0U, 1U}) {
      std::vector<Tree> trees;
      for (int own = 0; own < size; ++own) trees.push_back(two_trees(own, root, size)[tree]);
      // The first message does not count: the root sends it.
      EXPECT_LE(depth_of(trees, root), size == 1 ? 0 : 1 + forwards_in_two_trees(size));
    }
  });
}

TEST(TwoTrees, NobodyForwardsMoreThanItReceives) {
  for_all_roots([](int root, int size) {
    for (int own = 0; own < size; ++own) {
      const auto [first, second] = two_trees(own, root, size);
      if (own == root) {
        EXPECT_EQ(first.children.size(), size > 1 ? 1U : 0U);
        EXPECT_EQ(second.children.size(), size > 1 ? 1U : 0U);
      } else {
        EXPECT_TRUE(first.children.empty() || second.children.empty());
        EXPECT_LE(first.children.size() + second.children.size(), 2U);
      }
    }
  });
}

TEST(TwoTrees, ForwardsAreTheLevelsBelowTheFirst) {
  EXPECT_EQ(forwards_in_two_trees(1), 0);
  EXPECT_EQ(forwards_in_two_trees(2), 0);
  EXPECT_EQ(forwards_in_two_trees(3), 1);
  EXPECT_EQ(forwards_in_two_trees(4), 1);
  EXPECT_EQ(forwards_in_two_trees(5), 2);
  EXPECT_EQ(forwards_in_two_trees(512), 8);
}

}  // namespace
}  // namespace kolo::internal::backend::mpi
