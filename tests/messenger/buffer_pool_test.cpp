// SPDX-License-Identifier: Apache-2.0
#include "messenger/buffer_pool.hpp"

#include <gtest/gtest.h>

namespace kolo::internal::messenger {
namespace {

constexpr std::size_t mebibyte = 1 << 20;

TEST(BufferPool, ABufferIsUsedAgain) {
  BufferPool pool(4 * mebibyte);
  Buffer first = pool.take(mebibyte);
  const std::byte* const memory = first.data();
  pool.give_back(std::move(first));
  const Buffer second = pool.take(mebibyte - 1);
  EXPECT_EQ(second.data(), memory);
  EXPECT_EQ(second.size, mebibyte);
  EXPECT_NE(pool.take(mebibyte).data(), memory);
}

TEST(BufferPool, TheShortestThatIsLongEnoughIsTaken) {
  BufferPool pool(8 * mebibyte);
  Buffer longer = pool.take(3 * mebibyte);
  Buffer shorter = pool.take(2 * mebibyte);
  const std::byte* const memory = shorter.data();
  pool.give_back(std::move(longer));
  pool.give_back(std::move(shorter));
  EXPECT_EQ(pool.take(mebibyte).data(), memory);
  EXPECT_EQ(pool.take(mebibyte).size, 3 * mebibyte);
  EXPECT_EQ(pool.take(mebibyte).size, mebibyte);
}

TEST(BufferPool, KeepsNoMoreThanItMay) {
  BufferPool pool(2 * mebibyte);
  Buffer first = pool.take(mebibyte);
  Buffer second = pool.take(mebibyte);
  Buffer third = pool.take(mebibyte);
  const std::byte* const oldest = first.data();
  pool.give_back(std::move(first));
  pool.give_back(std::move(second));
  pool.give_back(std::move(third));  // frees the first
  const Buffer one = pool.take(mebibyte);
  const Buffer other = pool.take(mebibyte);
  EXPECT_NE(one.data(), oldest);
  EXPECT_NE(other.data(), oldest);
  pool.give_back(pool.take(2 * mebibyte + 1));
  EXPECT_EQ(pool.take(2 * mebibyte).size, 2 * mebibyte) << "the longer one was not kept";
}

}  // namespace
}  // namespace kolo::internal::messenger
