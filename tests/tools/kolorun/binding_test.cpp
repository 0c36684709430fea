// SPDX-License-Identifier: Apache-2.0
#include "kolorun/binding.hpp"

#include <gtest/gtest.h>

#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

namespace kolorun {
namespace {

using Shares = std::vector<std::vector<int>>;

/// The shares of a host with two NUMA nodes of four cores of one processor each.
Shares shares_of(Binding binding, int count, const std::vector<int>& own) {
  return share_processors(binding, node::Processors::synthetic("numa:2 core:4 pu:1"), own, count);
}

std::vector<int> all() {
  std::vector<int> processors(8);
  std::iota(processors.begin(), processors.end(), 0);
  return processors;
}

TEST(Binding, NoneLeavesEverything) {
  EXPECT_EQ(shares_of(Binding::none, 2, all()), (Shares{{}, {}}));
}

TEST(Binding, CoreDividesTheCoresInOrder) {
  EXPECT_EQ(shares_of(Binding::core, 2, all()), (Shares{{0, 1, 2, 3}, {4, 5, 6, 7}}));
  EXPECT_EQ(shares_of(Binding::core, 3, all()), (Shares{{0, 1}, {2, 3, 4}, {5, 6, 7}}));
  EXPECT_EQ(shares_of(Binding::core, 1, all()), (Shares{all()}));
}

TEST(Binding, UsesOnlyItsOwnProcessors) {
  EXPECT_EQ(shares_of(Binding::core, 2, {1, 3, 6}), (Shares{{1}, {3, 6}}));
  EXPECT_EQ(shares_of(Binding::numa, 2, {1, 6, 7}), (Shares{{1}, {6, 7}}));
  EXPECT_EQ(shares_of(Binding::numa, 2, {1, 2}), (Shares{{1, 2}, {1, 2}}));
}

TEST(Binding, CoreNeedsACoreForEach) {
  try {
    static_cast<void>(shares_of(Binding::core, 3, {1, 3}));
    FAIL() << "three processes on two cores";
  } catch (const std::runtime_error& error) {
    EXPECT_EQ(std::string(error.what()),
              "--bind-to core: 3 processes, but kolorun may use only 2 cores of this host; start "
              "fewer here, or use --bind-to none");
  }
}

TEST(Binding, NumaGivesEachItsNode) {
  const std::vector<int> first{0, 1, 2, 3};
  const std::vector<int> second{4, 5, 6, 7};
  EXPECT_EQ(shares_of(Binding::numa, 4, all()), (Shares{first, first, second, second}));
  EXPECT_EQ(shares_of(Binding::numa, 3, all()), (Shares{first, first, second}));
  EXPECT_EQ(shares_of(Binding::numa, 1, all()), (Shares{first}));
}

}  // namespace
}  // namespace kolorun
