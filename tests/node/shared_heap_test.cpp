// SPDX-License-Identifier: Apache-2.0
#include "node/shared_memory.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace kolo::internal::node {
namespace {

constexpr std::size_t page_bytes = 4096;

TEST(SharedHeap, GivesBlocksThatDoNotOverlapAndCanBeWritten) {
  SharedHeap heap(8 * page_bytes);
  auto* const a = static_cast<std::byte*>(heap.allocate(1));
  auto* const b = static_cast<std::byte*>(heap.allocate(page_bytes + 1));
  ASSERT_NE(a, nullptr);
  ASSERT_NE(b, nullptr);
  std::memset(a, 1, page_bytes);
  std::memset(b, 2, 2 * page_bytes);
  EXPECT_EQ(a[page_bytes - 1], std::byte{1});
  EXPECT_TRUE(heap.contains(a));
  EXPECT_TRUE(heap.contains(b + 2 * page_bytes - 1));
  EXPECT_FALSE(heap.contains(&heap));
  EXPECT_FALSE(heap.contains(heap.memory().data() + heap.memory().size()));
}

TEST(SharedHeap, HasNoMoreThanItWasMadeWith) {
  SharedHeap heap(3 * page_bytes);
  EXPECT_EQ(heap.allocate(4 * page_bytes), nullptr);
  EXPECT_NE(heap.allocate(3 * page_bytes), nullptr);
  EXPECT_EQ(heap.allocate(1), nullptr);
}

TEST(SharedHeap, WhatIsGivenBackInAnyOrderIsOneBlockAgain) {
  SharedHeap heap(4 * page_bytes);
  const std::vector<std::vector<std::size_t>> orders{
      {0, 1, 2, 3}, {3, 2, 1, 0}, {1, 3, 0, 2}, {2, 0, 3, 1}};
  for (const auto& order : orders) {
    std::vector<void*> blocks;
    for (int i = 0; i < 4; ++i) blocks.push_back(heap.allocate(page_bytes));
    EXPECT_EQ(heap.allocate(1), nullptr);
    for (const std::size_t i : order) heap.deallocate(blocks[i], page_bytes);
    void* const whole = heap.allocate(4 * page_bytes);
    ASSERT_NE(whole, nullptr);
    heap.deallocate(whole, 4 * page_bytes);
  }
}

TEST(SharedHeap, GivesZerosAgain) {
  SharedHeap heap(page_bytes);
  void* const first = heap.allocate(page_bytes);
  std::memset(first, 7, page_bytes);
  heap.deallocate(first, page_bytes);
  const auto* const second = static_cast<const std::byte*>(heap.allocate(page_bytes));
  for (std::size_t i = 0; i < page_bytes; ++i) ASSERT_EQ(second[i], std::byte{0});
}

TEST(SharedHeap, TakesMemoryOnlyForWhatIsHandedOut) {
  SharedHeap heap(std::size_t{1} << 40);
  EXPECT_EQ(heap.allocate(std::size_t{1} << 39), nullptr);  // no machine of this test has that
  EXPECT_NE(heap.allocate(page_bytes), nullptr);
}

}  // namespace
}  // namespace kolo::internal::node
