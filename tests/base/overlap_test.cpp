// SPDX-License-Identifier: Apache-2.0
#include "base/overlap.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace kolo::internal {
namespace {

/// `first` and `last` count bytes of one block, from 0 to 99.
MemoryUse use(std::size_t position, int first, int last, bool written = true) {
  static const std::vector<std::byte> block(100);
  return {block.data() + first, block.data() + last, position, written};
}

Overlap of_written(const std::vector<MemoryUse>& uses) {
  return find_overlap_of_written(uses.size(), [&](std::size_t i) { return uses[i]; });
}

Overlap pair(std::size_t lower, std::size_t upper) { return std::pair(lower, upper); }

TEST(Overlaps, OfWhatIsWrittenAreFoundInAnyOrder) {
  std::mt19937 random(7);
  for (int round = 0; round < 100; ++round) {
    std::vector<MemoryUse> uses;
    for (int i = 0; i < 10; ++i) uses.push_back(use(0, 10 * i, 10 * i + 10));
    std::ranges::shuffle(uses, random);
    for (std::size_t i = 0; i < uses.size(); ++i) uses[i].position = i;
    EXPECT_EQ(of_written(uses), std::nullopt);
    const auto one = static_cast<std::size_t>(round % 10);
    const std::size_t other = (one + 1 + static_cast<std::size_t>(round / 10)) % 10;
    if (one == other) continue;
    uses[one].begin = uses[other].begin + 9;  // the last byte
    uses[one].end = uses[other].end;
    EXPECT_EQ(of_written(uses), pair(std::min(one, other), std::max(one, other)));
  }
}

TEST(Overlaps, OfALongTensorAreWithAllThatItContains) {
  EXPECT_EQ(of_written({use(0, 0, 90), use(1, 10, 20)}), pair(0, 1));
  EXPECT_EQ(of_written({use(0, 10, 20), use(1, 0, 90)}), pair(0, 1));
  EXPECT_EQ(of_written({use(0, 50, 60), use(1, 70, 80), use(2, 50, 60)}), pair(0, 2));
}

TEST(Overlaps, AreNotWithTensorsWithoutElements) {
  EXPECT_EQ(of_written({use(0, 0, 90), use(1, 10, 10), use(2, 90, 99), use(3, 95, 95)}),
            std::nullopt);
  EXPECT_EQ(of_written({}), std::nullopt);
}

TEST(Overlaps, AreAllowedAmongReadersAndInPlace) {
  EXPECT_EQ(find_overlap({use(0, 0, 50, false), use(1, 20, 70, false), use(2, 0, 70, false)}),
            std::nullopt);
  EXPECT_EQ(
      find_overlap({use(0, 0, 50, false), use(0, 0, 20), use(1, 50, 99, false), use(1, 70, 80)}),
      std::nullopt);
}

TEST(Overlaps, OfAWriterAndAReaderAreFound) {
  EXPECT_EQ(find_overlap({use(0, 0, 50, false), use(1, 40, 60)}), pair(0, 1));
  EXPECT_EQ(find_overlap({use(0, 40, 60, false), use(1, 0, 50)}), pair(0, 1));
  // The own input of 1 reaches further than the input of 0.
  EXPECT_EQ(find_overlap({use(0, 0, 30, false), use(1, 0, 90, false), use(1, 20, 40)}), pair(0, 1));
  EXPECT_EQ(find_overlap({use(1, 0, 90, false), use(0, 0, 30, false), use(1, 40, 50)}),
            std::nullopt);
}

}  // namespace
}  // namespace kolo::internal
