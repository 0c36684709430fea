// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace kolo::internal::backend::shm {

/// Call this after reading a part of another rank's slot that no other rank will read afterwards.
/// It writes each cache line back unchanged, so that only this core has the line. Otherwise the
/// owner of the slot, on its next write, would first have to invalidate this core's copy, which
/// takes four to six times as long.
inline void take_over(std::byte* part, std::int64_t bytes) {
  constexpr std::uintptr_t line = 64;
  const auto first = reinterpret_cast<std::uintptr_t>(part);
  // Touch the first byte of the part, then that of each further line, but no byte outside of the
  // part.
  for (std::uintptr_t at = first; at < first + static_cast<std::uintptr_t>(bytes);
       at = (at / line + 1) * line) {
    volatile std::byte& byte = part[at - first];
    byte = byte;
  }
}

}  // namespace kolo::internal::backend::shm
