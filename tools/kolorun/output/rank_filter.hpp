// SPDX-License-Identifier: Apache-2.0
// The ranks whose output is shown: --filter.
#pragma once

#include <algorithm>
#include <cstdio>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace kolorun {

class RankFilter {
 public:
  /// Parses a list such as "0,4-7". Returns none if it is something else, or empty.
  [[nodiscard]] static std::optional<RankFilter> parse(const std::string& list) {
    RankFilter filter;
    filter.text_ = list;
    std::istringstream parts(list + ',');
    for (std::string part; std::getline(parts, part, ',');) {
      int first = 0;
      int last = 0;
      int used = 0;
      const auto is_all = [&] { return used == static_cast<int>(part.size()); };
      if (part.find_first_not_of("0123456789-") != std::string::npos || part.size() > max_part)
        return std::nullopt;
      if (std::sscanf(part.c_str(), "%d%n", &first, &used) == 1 && is_all())
        last = first;
      else if (std::sscanf(part.c_str(), "%d-%d%n", &first, &last, &used) != 2 || !is_all())
        return std::nullopt;
      if (first < 0 || last < first) return std::nullopt;
      filter.ranges_.emplace_back(first, last);
    }
    return filter.ranges_.empty() ? std::nullopt : std::optional(filter);
  }

  /// True also for a process without a rank, which has been started later: it may have become any.
  [[nodiscard]] bool shows(int rank) const {
    return rank < 0 || std::ranges::any_of(ranges_, [rank](const auto& range) {
             return rank >= range.first && rank <= range.second;
           });
  }
  [[nodiscard]] const std::string& text() const { return text_; }
  [[nodiscard]] int highest() const {
    return std::ranges::max(ranges_, {}, &std::pair<int, int>::second).second;
  }

 private:
  static constexpr std::size_t max_part = 17;  // two numbers that fit into an int

  std::string text_{};
  std::vector<std::pair<int, int>> ranges_{};  // first and last
};

}  // namespace kolorun
