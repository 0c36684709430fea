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

TEST(Processors, AreGroupedByTheirPlaceAndNotByNumber) {
  using Groups = Processors::Groups;
  // The first threads of the cores have the first numbers, as on most hosts.
  const auto threads = Processors::synthetic("numa:2 core:2 pu:2(indexes=0,4,1,5,2,6,3,7)");
  const std::vector<int> all{0, 1, 2, 3, 4, 5, 6, 7};
  EXPECT_EQ(threads.cores_of(all), (Groups{{0, 4}, {1, 5}, {2, 6}, {3, 7}}));
  EXPECT_EQ(threads.numa_nodes_of(all), (Groups{{0, 4, 1, 5}, {2, 6, 3, 7}}));
  EXPECT_EQ(threads.cores_of(std::vector{7, 1, 2}), (Groups{{1}, {2}, {7}}));
  // The nodes have the processors in turn.
  const auto turns = Processors::synthetic("numa:2 core:2 pu:1(indexes=0,2,1,3)");
  EXPECT_EQ(turns.cores_of(std::vector{0, 1, 2, 3}), (Groups{{0}, {2}, {1}, {3}}));
  EXPECT_EQ(turns.numa_nodes_of(std::vector{1, 2, 3}), (Groups{{2}, {1, 3}}));
  const auto unknown = Processors::synthetic("nonsense");
  EXPECT_EQ(unknown.cores_of(std::vector{3, 1}), (Groups{{1}, {3}}));
  EXPECT_EQ(unknown.numa_nodes_of(std::vector{3, 1}), (Groups{{1, 3}}));
}

TEST(Processors, OfAnotherHostAreNotThisHosts) {
  ::setenv("HWLOC_SYNTHETIC", "core:1024 pu:1", 1);
  EXPECT_EQ(Processors::of_this_host().numa_node_of(own_processors()), -1);
  ::unsetenv("HWLOC_SYNTHETIC");
}

TEST(Processors, ThisProcessMayUseSome) { EXPECT_FALSE(own_processors().empty()); }

/// A host whose processors share second-level caches in pairs: 0 with 1, and 2 with 3.
class CachesTest : public testing::Test {
 protected:
  [[nodiscard]] Caches of(const std::vector<int>& processors) const {
    return host_.caches_of(processors);
  }

  static constexpr std::int64_t size = 512 << 10;

 private:
  const Processors host_ = Processors::synthetic("package:1 l2:2(size=524288) core:2 pu:1");
};

std::int64_t share(const std::vector<Caches>& ranks) { return cache_share(ranks); }

TEST_F(CachesTest, ARankHasAtMostOneCache) {
  EXPECT_EQ(share({of({0})}), size);
  EXPECT_EQ(share({of({0, 1, 2, 3})}), size);
  EXPECT_EQ(share({of({0}), of({2})}), size);
}

TEST_F(CachesTest, RanksOnProcessorsOfOneCacheShareIt) {
  EXPECT_EQ(share({of({0}), of({1})}), size / 2);
  EXPECT_EQ(share({of({0}), of({1}), of({2}), of({3})}), size / 2);
  EXPECT_EQ(share(std::vector(8, of({0, 1, 2, 3}))), size / 4);
}

TEST_F(CachesTest, WhereNothingIsKnownEveryProcessorHasAnUsualCache) {
  const Caches unknown = Processors::synthetic("nonsense").caches_of(std::vector{0, 1});
  EXPECT_EQ(unknown.bytes, 0);
  EXPECT_EQ(share({unknown, unknown}), std::int64_t{1} << 20);
  EXPECT_EQ(share({unknown, unknown, unknown, unknown}), std::int64_t{1} << 19);
  EXPECT_EQ(share({Caches{}, Caches{}}), std::int64_t{1} << 19);
}

TEST_F(CachesTest, AProcessorThatIsNotDescribedHasACacheOfItsOwn) {
  EXPECT_EQ(of({70}).bytes, 0);
  EXPECT_EQ(share({of({0, 70}), of({1, 71})}), size);
}

TEST_F(CachesTest, ProcessorsBeyondTheBitsAreLeftOut) {
  EXPECT_EQ(share({of({Caches::max_processors, 70})}), std::int64_t{1} << 20);
}

}  // namespace
}  // namespace kolo::internal::node
