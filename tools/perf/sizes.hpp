// Numbers of bytes as people write them.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace perf {

/// `64`, `64K`, `64KB`, `64KiB`, also with M and G, all powers of 1024. Throws UsageError.
[[nodiscard]] std::int64_t parse_bytes(std::string_view flag, std::string_view text);

/// From `smallest` on, each `factor` times the one before, while not above `largest`.
[[nodiscard]] std::vector<std::int64_t> geometric_sizes(std::int64_t smallest, std::int64_t largest,
                                                        std::int64_t factor);

}  // namespace perf
