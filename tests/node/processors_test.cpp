// SPDX-License-Identifier: Apache-2.0
#include "node/processors.hpp"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <numeric>
#include <vector>

namespace kolo::internal::node {
namespace {

int node_in(const char* host, const std::vector<int>& processors) {
  return Processors::synthetic(host).numa_node_of(processors);
}

TEST(Processors, HaveTheNodeThatHasThemAll) {
  // Four nodes of four processors.
  const char* const host = "package:2 numa:2 core:2 pu:2";
  EXPECT_EQ(node_in(host, {0}), 0);
  EXPECT_EQ(node_in(host, {0, 1, 2, 3}), 0);
  EXPECT_EQ(node_in(host, {4, 7}), 1);
  EXPECT_EQ(node_in(host, {15}), 3);
}

TEST(Processors, OfSeveralNodesHaveNone) {
  const char* const host = "package:2 numa:2 core:2 pu:2";
  EXPECT_EQ(node_in(host, {3, 4}), -1);
  EXPECT_EQ(node_in(host, {0, 15}), -1);
  std::vector<int> all(16);
  std::iota(all.begin(), all.end(), 0);
  EXPECT_EQ(node_in(host, all), -1);
}

TEST(Processors, HaveTheirNodeBesideMemoryThatIsNearMoreProcessors) {
  // One node of the whole host, and one of each package.
  const char* const host = "[numa] package:2 [numa] core:4 pu:1";
  const int first = node_in(host, {0, 3});
  const int second = node_in(host, {4, 5});
  const int whole = node_in(host, {3, 4});
  EXPECT_NE(first, second);
  EXPECT_NE(first, whole);
  EXPECT_NE(second, whole);
  EXPECT_GE(whole, 0);
}

TEST(Processors, OfAHostWithOneNodeHaveIt) { EXPECT_EQ(node_in("core:4 pu:1", {0, 1, 2, 3}), 0); }

TEST(Processors, HaveNoNodeWhereNothingIsKnown) {
  EXPECT_EQ(node_in("nonsense", {0}), -1);
  EXPECT_EQ(node_in("core:4 pu:1", {}), -1);
  EXPECT_EQ(node_in("core:4 pu:1", {0, 4}), -1);
}

TEST(Processors, OfAnotherHostAreNotThisHosts) {
  ::setenv("HWLOC_SYNTHETIC", "core:1024 pu:1", 1);
  EXPECT_EQ(Processors::of_this_host().numa_node_of(own_processors()), -1);
  ::unsetenv("HWLOC_SYNTHETIC");
}

TEST(Processors, ThisProcessMayUseSome) { EXPECT_FALSE(own_processors().empty()); }

}  // namespace
}  // namespace kolo::internal::node
