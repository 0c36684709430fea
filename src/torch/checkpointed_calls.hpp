// SPDX-License-Identifier: Apache-2.0
// The calls of `checkpointed`, by which a module knows whether its forward made any, or is in one.
#pragma once

#include <cstdint>

namespace kolo::internal {

/// The calls that this thread has made with gradients enabled.
[[nodiscard]] std::uint64_t checkpointed_calls() noexcept;

/// The number of the call that is running its function the first time on this thread; 0 outside.
[[nodiscard]] std::uint64_t current_checkpointed_call() noexcept;

}  // namespace kolo::internal
