// SPDX-License-Identifier: Apache-2.0
#include "backend/mpi/exchange.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <utility>

namespace {

using kolo::internal::backend::mpi::Buffer;
using kolo::internal::backend::mpi::BufferPool;

// So large that the allocator maps it anew each time: only a buffer that was kept still has its
// bytes.
constexpr std::int64_t large = 40 << 20;

TEST(BufferPool, ALargeBufferIsKeptForTheNextBatch) {
  BufferPool pool;
  Buffer buffer = pool.take(large);
  buffer[large - 1] = std::byte{42};
  pool.give_back(std::move(buffer), large);
  EXPECT_EQ(pool.take(large - 1000)[large - 1], std::byte{42});
}

TEST(BufferPool, KeepsNoMoreThanItsLimit) {
  BufferPool pool;
  Buffer first = pool.take(large);
  Buffer second = pool.take(large);
  second[0] = std::byte{42};
  pool.give_back(std::move(first), large);
  pool.give_back(std::move(second), large);
  first = pool.take(large);
  second = pool.take(large);
  EXPECT_NE(second[0], std::byte{42});
}

}  // namespace
