// SPDX-License-Identifier: Apache-2.0
#include "base/rank_set.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <numeric>

namespace kolo::internal {

RankSet RankSet::range(int first, int last) {
  RankSet ranks;
  if (first <= last) ranks.ranges_.push_back({first, last});
  return ranks;
}

/// Merges `next` with the last range if they overlap or touch, so that equal sets have equal
/// ranges.
void RankSet::append(const Range& next) {
  if (!ranges_.empty() && next.first <= ranges_.back().last + 1) {
    ranges_.back().last = std::max(ranges_.back().last, next.last);
  } else {
    ranges_.push_back(next);
  }
}

RankSet RankSet::of(const std::vector<int>& ranks) {
  std::vector<int> sorted = ranks;
  std::ranges::sort(sorted);
  RankSet set;
  for (const int rank : sorted) set.append({rank, rank});
  return set;
}

void RankSet::insert(const RankSet& other) {
  std::vector<Range> sorted;
  sorted.reserve(ranges_.size() + other.ranges_.size());
  std::ranges::merge(ranges_, other.ranges_, std::back_inserter(sorted), {}, &Range::first,
                     &Range::first);
  ranges_.clear();
  for (const Range& next : sorted) append(next);
}

bool RankSet::contains(int rank) const {
  const auto after = std::ranges::upper_bound(ranges_, rank, {}, &Range::first);
  return after != ranges_.begin() && rank <= std::prev(after)->last;
}

int RankSet::count() const {
  return std::accumulate(ranges_.begin(), ranges_.end(), 0, [](int sum, const Range& range) {
    return sum + range.last - range.first + 1;
  });
}

RankSet RankSet::complement(int size) const {
  RankSet others;
  int next = 0;  // the first rank not yet dealt with
  for (const Range& range : ranges_) {
    if (range.first >= size) break;
    if (range.first > next) others.ranges_.push_back({next, range.first - 1});
    next = std::max(next, range.last + 1);
  }
  if (next < size) others.ranges_.push_back({next, size - 1});
  return others;
}

RankSet RankSet::common(const RankSet& others) const {
  RankSet both;
  auto a = ranges_.begin();
  auto b = others.ranges_.begin();
  while (a != ranges_.end() && b != others.ranges_.end()) {
    const int first = std::max(a->first, b->first);
    const int last = std::min(a->last, b->last);
    if (first <= last) both.ranges_.push_back({first, last});
    // The range that ends first cannot meet any further range of the other set.
    ++(a->last < b->last ? a : b);
  }
  return both;
}

RankSet RankSet::without(const RankSet& others) const {
  if (ranges_.empty()) return {};
  return common(others.complement(ranges_.back().last + 1));
}

std::vector<int> RankSet::to_vector() const {
  std::vector<int> ranks;
  ranks.reserve(static_cast<std::size_t>(count()));
  for (const Range& range : ranges_)
    for (int rank = range.first; rank <= range.last; ++rank) ranks.push_back(rank);
  return ranks;
}

std::string to_string(const RankSet& ranks) {
  std::string text;
  for (const RankSet::Range& range : ranks.ranges()) {
    if (!text.empty()) text += ", ";
    text += range.first == range.last ? fmt::format("{}", range.first)
                                      : fmt::format("{}-{}", range.first, range.last);
  }
  return text;
}

std::string ranks_in_words(const RankSet& ranks) {
  return (ranks.count() == 1 ? "rank " : "ranks ") + to_string(ranks);
}

}  // namespace kolo::internal
