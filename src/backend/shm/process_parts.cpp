// SPDX-License-Identifier: Apache-2.0
#include "backend/shm/process_parts.hpp"

#include <algorithm>
#include <span>

#include "node/process_memory.hpp"

namespace kolo::internal::backend::shm {
namespace {

constexpr std::int64_t line = 64;

}  // namespace

std::int64_t ProcessParts::max_bytes(std::int64_t all) const {
  if (parts_.empty()) return all;
  return std::max(std::ssize(arena_.scratch()) / count() / line * line, line);
}

bool ProcessParts::read(std::int64_t begin, std::int64_t bytes,
                        std::vector<const std::byte*>& inputs) const {
  const auto size = static_cast<std::size_t>(bytes);
  std::span<std::byte> scratch = arena_.scratch();
  for (const Part& part : parts_) {
    const std::span<std::byte> to = scratch.first(size);
    if (!node::read_memory(*part.process, part.deposit.input + static_cast<std::uint64_t>(begin),
                           to))
      return false;
    inputs[part.index] = to.data();
    scratch = scratch.subspan((size + line - 1) / line * line);
  }
  return true;
}

bool ProcessParts::write(std::int64_t begin, std::int64_t bytes, const std::byte* results) const {
  const std::span<const std::byte> from(results, static_cast<std::size_t>(bytes));
  return std::ranges::all_of(parts_, [&](const Part& part) {
    return node::write_memory(*part.process, from,
                              part.deposit.output + static_cast<std::uint64_t>(begin));
  });
}

}  // namespace kolo::internal::backend::shm
