// SPDX-License-Identifier: Apache-2.0
// Log lines about refused connections. They are limited, so that a port scan cannot fill the log.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>

namespace kolo::internal::rendezvous {

class Refusals {
 public:
  using Time = std::chrono::nanoseconds;

  static constexpr int max_lines = 20;  // per interval
  static constexpr Time interval = std::chrono::minutes(1);

  /// The line to write; none if this interval already had `max_lines` lines.
  [[nodiscard]] std::optional<std::string> line(const std::string& from, const std::string& reason,
                                                Time now) {
    int left_out = 0;
    if (now - begin_ >= interval) {
      begin_ = now;
      left_out = std::max(0, count_ - max_lines);
      count_ = 0;
    }
    if (++count_ > max_lines) return std::nullopt;
    std::string text = fmt::format("a connection from {} is refused: {}", from, reason);
    if (left_out > 0) text += fmt::format(" (before it, {} more that were not shown)", left_out);
    if (count_ == max_lines) text += "; others are only counted for a while";
    return text;
  }

 private:
  Time begin_{};
  int count_ = 0;  // refusals since `begin_`
};

}  // namespace kolo::internal::rendezvous
