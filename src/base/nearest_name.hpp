// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>

namespace kolo::internal {

/// The name among `names` of which `wanted` is probably a misspelling, or the other way round; or
/// "".
[[nodiscard]] std::string nearest_name(const std::string& wanted,
                                       std::span<const std::string> names);

}  // namespace kolo::internal
