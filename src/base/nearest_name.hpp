// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>

namespace kolo::internal {

/// The name in `names` of which `wanted` is most likely a misspelling (or the reverse), or "" if no
/// name is similar enough.
[[nodiscard]] std::string nearest_name(const std::string& wanted,
                                       std::span<const std::string> names);

}  // namespace kolo::internal
