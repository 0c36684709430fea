// SPDX-License-Identifier: Apache-2.0
// The number of calls of `checkpointed`, by which a module knows whether its forward made any.
#pragma once

#include <cstdint>

namespace kolo::internal {

/// The calls that this thread has made with gradients enabled.
[[nodiscard]] std::uint64_t checkpointed_calls() noexcept;

}  // namespace kolo::internal
