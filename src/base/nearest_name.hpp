// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>

namespace kolo::internal {

/// The name in `names` that differs from `wanted` probably by a misspelling in one of them, or ""
/// if none does.
[[nodiscard]] std::string nearest_name(const std::string& wanted,
                                       std::span<const std::string> names);

}  // namespace kolo::internal
