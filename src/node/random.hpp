// SPDX-License-Identifier: Apache-2.0
// Random bytes that nobody can guess.
#pragma once

#include <sys/random.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <span>

#include "kolo/error.hpp"

namespace kolo::internal {

/// Fills `bytes` from the kernel's generator, which secrets need: `std::random_device` may be a
/// single instruction of the processor. Throws BackendError.
inline void fill_random(std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t drawn = ::getrandom(bytes.data(), bytes.size(), 0);
    if (drawn > 0)
      bytes = bytes.subspan(static_cast<std::size_t>(drawn));
    else if (drawn == 0 || errno != EINTR)
      throw BackendError("getrandom gives no random bytes; a sandbox may forbid the call");
  }
}

[[nodiscard]] inline std::uint64_t random_number() {
  std::uint64_t number = 0;
  fill_random(std::as_writable_bytes(std::span(&number, 1)));
  return number;
}

}  // namespace kolo::internal
