// SPDX-License-Identifier: Apache-2.0
#include "backend/shm/scatter_list.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

namespace kolo::internal::backend::shm {
namespace {

using Bytes = std::vector<std::byte>;

/// The next bytes of the list, fewer at its end.
Bytes read(ScatterList<const std::byte>& list, std::int64_t bytes) {
  Bytes read(static_cast<std::size_t>(bytes), std::byte{0xee});
  const std::int64_t found =
      list.advance(bytes, [&](const std::byte* from, std::int64_t offset, std::size_t part) {
        std::copy_n(from, part, read.begin() + offset);
      });
  read.resize(static_cast<std::size_t>(found));
  return read;
}

TEST(ScatterList, OfNothingHasNothing) {
  ScatterList<const std::byte> list;
  list.add(nullptr, 0);
  EXPECT_EQ(list.left(), 0);
  EXPECT_EQ(list.advance(10, [](auto, auto, auto) { FAIL() << "there is nothing"; }), 0);
}

TEST(ScatterList, IsReadAcrossItsPlaces) {
  const Bytes first{std::byte{1}, std::byte{2}, std::byte{3}};
  const Bytes second{std::byte{4}};
  const Bytes third{std::byte{5}, std::byte{6}};
  ScatterList<const std::byte> list;
  list.add(first.data(), 3);
  list.add(second.data(), 1);
  list.add(nullptr, 0);
  list.add(third.data(), 2);
  EXPECT_EQ(list.left(), 6);
  EXPECT_EQ(read(list, 2), (Bytes{std::byte{1}, std::byte{2}}));
  EXPECT_EQ(list.left(), 4);
  EXPECT_EQ(read(list, 0), Bytes{});
  EXPECT_EQ(read(list, 3), (Bytes{std::byte{3}, std::byte{4}, std::byte{5}}));
  EXPECT_EQ(read(list, 100), Bytes{std::byte{6}});
  EXPECT_EQ(list.left(), 0);
  EXPECT_EQ(read(list, 1), Bytes{});
}

/// Cuts `all` into a list of places of random lengths.
template <typename Byte>
ScatterList<Byte> list_over(Byte* all, std::int64_t bytes, std::mt19937& random) {
  ScatterList<Byte> list;
  for (std::int64_t at = 0; at < bytes;) {
    const auto part = std::min(static_cast<std::int64_t>(random() % 40), bytes - at);
    list.add(all + at, part);
    at += part;
  }
  return list;
}

TEST(ScatterList, WhatIsReadFromOneIsWrittenIntoAnother) {
  for (unsigned seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937 random(seed);
    Bytes from(random() % 1000);
    for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i * 7 + seed);
    Bytes to(from.size());
    const auto bytes = static_cast<std::int64_t>(from.size());
    auto input = list_over<const std::byte>(from.data(), bytes, random);
    auto output = list_over<std::byte>(to.data(), bytes, random);
    while (input.left() > 0) {
      const Bytes part = read(input, static_cast<std::int64_t>(random() % 100));
      const auto length = static_cast<std::int64_t>(part.size());
      EXPECT_EQ(output.advance(length,
                               [&](std::byte* place, std::int64_t offset, std::size_t copied) {
                                 std::copy_n(part.begin() + offset, copied, place);
                               }),
                length);
      EXPECT_EQ(input.left(), output.left());
    }
    EXPECT_EQ(to, from);
  }
}

}  // namespace
}  // namespace kolo::internal::backend::shm
