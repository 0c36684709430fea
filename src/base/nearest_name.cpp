// SPDX-License-Identifier: Apache-2.0
#include "base/nearest_name.hpp"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>
#include <vector>

namespace kolo::internal {
namespace {

/// The Levenshtein distance: the number of characters to change, add or remove.
std::size_t distance(const std::string& a, const std::string& b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t changed = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = std::exchange(row[j], std::min({changed, row[j] + 1, row[j - 1] + 1}));
    }
  }
  return row[b.size()];
}

}  // namespace

std::string nearest_name(const std::string& wanted, std::span<const std::string> names) {
  constexpr std::size_t max_length = 256;  // longer names are not compared: the cost is quadratic
  std::string nearest;
  // At most a third of the characters may differ, or one in a short name.
  std::size_t min_distance = std::max<std::size_t>(wanted.size() / 3, 1) + 1;
  for (const std::string& name : names) {
    if (name.empty() || name == wanted || std::max(name.size(), wanted.size()) > max_length)
      continue;
    const std::size_t apart = distance(wanted, name);
    // With as many changes as characters, nothing of the name would remain.
    if (apart >= min_distance || apart >= std::min(wanted.size(), name.size())) continue;
    min_distance = apart;
    nearest = name;
  }
  return nearest;
}

}  // namespace kolo::internal
