// SPDX-License-Identifier: Apache-2.0
#include "node/caches.hpp"

#include <algorithm>
#include <bit>
#include <cstddef>

namespace kolo::internal::node {
namespace {

constexpr std::int64_t default_bytes = std::int64_t{1} << 20;

}  // namespace

void Caches::add(int first_processor) {
  const auto number = static_cast<std::size_t>(first_processor);
  if (number < max_processors) known_by[number / 64] |= std::uint64_t{1} << (number % 64);
}

std::int64_t cache_share(std::span<const Caches> of_ranks) {
  std::int64_t bytes = 0;
  Caches all;
  for (const Caches& caches : of_ranks) {
    if (caches.bytes > 0) bytes = bytes == 0 ? caches.bytes : std::min(bytes, caches.bytes);
    for (std::size_t i = 0; i < all.known_by.size(); ++i) all.known_by[i] |= caches.known_by[i];
  }
  if (bytes == 0) bytes = default_bytes;
  std::int64_t count = 0;
  for (const std::uint64_t bits : all.known_by) count += std::popcount(bits);
  // All caches together are divided equally, but a rank cannot use more than one at a time.
  return std::min(bytes, bytes * std::max<std::int64_t>(count, 1) / std::ssize(of_ranks));
}

}  // namespace kolo::internal::node
