// SPDX-License-Identifier: Apache-2.0
// Sets of times, as spans in order that do not overlap.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace diagnose {

/// In nanoseconds.
struct Span {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::string text{};  // what it was for

  [[nodiscard]] std::int64_t length() const { return end - begin; }
};

/// Joins spans that overlap, or lie closer together than `gap`. The longest one gives the text.
[[nodiscard]] inline std::vector<Span> unite(std::vector<Span> spans, std::int64_t gap = 0) {
  std::ranges::sort(spans, {}, &Span::begin);
  std::vector<Span> all;
  std::int64_t longest = 0;
  for (Span& span : spans) {
    if (all.empty() || span.begin > all.back().end + gap) {
      longest = span.length();
      all.push_back(std::move(span));
      continue;
    }
    Span& last = all.back();
    last.end = std::max(last.end, span.end);
    if (span.length() <= longest) continue;
    longest = span.length();
    last.text = std::move(span.text);
  }
  return all;
}

/// The part of `spans` between two times.
[[nodiscard]] inline std::vector<Span> clip(const std::vector<Span>& spans, const Span& within) {
  std::vector<Span> part;
  for (const Span& span : spans)
    if (span.end > within.begin && span.begin < within.end)
      part.push_back(
          {std::max(span.begin, within.begin), std::min(span.end, within.end), span.text});
  return part;
}

/// The part of `spans` that is outside of `others`; both are in order without overlaps.
[[nodiscard]] inline std::vector<Span> subtract(const std::vector<Span>& spans,
                                                const std::vector<Span>& others) {
  std::vector<Span> rest;
  auto other = others.begin();
  for (const Span& span : spans) {
    std::int64_t begin = span.begin;
    while (other != others.end() && other->end <= begin) ++other;
    for (auto next = other; next != others.end() && next->begin < span.end; ++next) {
      if (next->begin > begin) rest.push_back({begin, next->begin, span.text});
      begin = std::max(begin, next->end);
    }
    if (begin < span.end) rest.push_back({begin, span.end, span.text});
  }
  return rest;
}

[[nodiscard]] inline std::int64_t length_of(const std::vector<Span>& spans) {
  std::int64_t sum = 0;
  for (const Span& span : spans) sum += span.length();
  return sum;
}

}  // namespace diagnose
