// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace kolo::internal::backend::shm {

/// Call it when this rank has read a part of another's slot that no other rank reads. It writes to
/// each cache line, without changing it: so this core is the only one that has the line. Otherwise
/// the rank that writes to its slot next would have to invalidate a copy on this core first, which
/// takes five times as long.
inline void take_over(std::byte* part, std::int64_t bytes) {
  constexpr std::uintptr_t line = 64;
  const auto first = reinterpret_cast<std::uintptr_t>(part);
  // The first byte, then the first of each line, so that bytes of no other part are written.
  for (std::uintptr_t at = first; at < first + static_cast<std::uintptr_t>(bytes);
       at = (at / line + 1) * line) {
    volatile std::byte& byte = part[at - first];
    byte = byte;
  }
}

}  // namespace kolo::internal::backend::shm
