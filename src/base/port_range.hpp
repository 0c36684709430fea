// SPDX-License-Identifier: Apache-2.0
// The ports at which Kolo may listen.
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string_view>
#include <system_error>

namespace kolo::internal {

/// By default the system chooses the ports.
struct PortRange {
  std::uint16_t first = 0;
  std::uint16_t last = 0;

  /// Parses "46000:46099". Returns none if the text is something else.
  [[nodiscard]] static std::optional<PortRange> parse(std::string_view text) {
    PortRange range;
    const char* const end = text.data() + text.size();
    const auto low = std::from_chars(text.data(), end, range.first);
    if (low.ec != std::errc() || low.ptr == end || *low.ptr != ':') return std::nullopt;
    const auto high = std::from_chars(low.ptr + 1, end, range.last);
    if (high.ec != std::errc() || high.ptr != end) return std::nullopt;
    return range.first > 0 && range.first <= range.last ? std::optional(range) : std::nullopt;
  }
  /// True if the range limits the ports.
  [[nodiscard]] bool is_set() const { return first != 0; }

  friend bool operator==(const PortRange&, const PortRange&) = default;
};

}  // namespace kolo::internal
