// SPDX-License-Identifier: Apache-2.0
#include "node/caches.hpp"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <fstream>

namespace kolo::internal::node {
namespace {

constexpr std::int64_t default_bytes = std::int64_t{1} << 20;

std::string cache_file(const std::string& root, int processor, int index, const char* name) {
  return fmt::format("{}/sys/devices/system/cpu/cpu{}/cache/index{}/{}", root, processor, index,
                     name);
}

/// The number at the beginning of a file; -1 if there is none. A K after it stands for KiB.
std::int64_t number_in(const std::string& path) {
  std::ifstream file(path);
  std::int64_t number = -1;
  char unit = 0;
  if (!(file >> number)) return -1;
  if (file.get(unit) && unit == 'K') number *= 1024;
  return number;
}

/// -1 if /sys does not describe the caches.
int index_of_second_level(int processor, const std::string& root) {
  for (int index = 0;; ++index) {
    const std::int64_t level = number_in(cache_file(root, processor, index, "level"));
    if (level == 2 || level < 0) return level == 2 ? index : -1;
  }
}

}  // namespace

std::vector<int> own_processors() {
  cpu_set_t set;
  std::vector<int> processors;
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return processors;
  for (std::size_t processor = 0; processor < CPU_SETSIZE; ++processor)
    if (CPU_ISSET(processor, &set)) processors.push_back(static_cast<int>(processor));
  return processors;
}

Caches caches_of(std::span<const int> processors, const std::string& root) {
  Caches caches;
  if (processors.empty()) return caches;
  const int index = index_of_second_level(processors.front(), root);
  if (index >= 0)
    caches.bytes =
        std::max<std::int64_t>(number_in(cache_file(root, processors.front(), index, "size")), 0);
  for (const int processor : processors) {
    // A list such as 0,64 or 0-3: those that share the cache.
    const std::int64_t first =
        index < 0 ? -1 : number_in(cache_file(root, processor, index, "shared_cpu_list"));
    const auto known_by = static_cast<std::size_t>(first < 0 ? processor : first);
    if (known_by < Caches::max_processors)
      caches.known_by[known_by / 64] |= std::uint64_t{1} << (known_by % 64);
  }
  return caches;
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
  return std::min(bytes, bytes * std::max<std::int64_t>(count, 1) / std::ssize(of_ranks));
}

}  // namespace kolo::internal::node
