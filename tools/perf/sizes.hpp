// SPDX-License-Identifier: Apache-2.0
// Numbers of bytes as written on the command line.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace perf {

/// Parses `64`, `64K`, `64KB` and `64KiB`, also with M and G; all are powers of 1024. Throws
/// UsageError.
[[nodiscard]] std::int64_t parse_bytes(std::string_view flag, std::string_view text);

/// `smallest`, `smallest * factor`, `smallest * factor^2`, and so on, up to `largest`.
[[nodiscard]] std::vector<std::int64_t> geometric_sizes(std::int64_t smallest, std::int64_t largest,
                                                        std::int64_t factor);

}  // namespace perf
