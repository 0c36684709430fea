// SPDX-License-Identifier: Apache-2.0
#include "diagnostics/pace_meter.hpp"

#include <algorithm>

namespace kolo::internal::diagnostics {
namespace {

// A window has several steps, so that one hiccup does not decide, unless steps take very long.
constexpr std::chrono::nanoseconds shortest_window = std::chrono::milliseconds(250);
constexpr std::int64_t fewest_steps = 5;
constexpr std::chrono::nanoseconds longest_window = std::chrono::seconds(10);
// Operations before which a rank computed for less than this part of its step are left out: the
// report stays small, and they delay no one.
constexpr int smallest_part = 50;

std::uint64_t median(std::vector<std::uint64_t> counts) {
  if (counts.empty()) return 0;
  const auto middle = counts.begin() + static_cast<std::ptrdiff_t>(counts.size() / 2);
  std::ranges::nth_element(counts, middle);
  return *middle;
}

}  // namespace

std::optional<PaceReport> PaceMeter::take(const Names& names, TimePoint now) {
  const std::chrono::nanoseconds length = now - began_;
  if (touched_.empty() || length < shortest_window) return std::nullopt;
  std::vector<std::uint64_t> in_window;
  std::vector<std::uint64_t> in_session;
  std::chrono::nanoseconds computing{};
  for (const std::uint32_t id : touched_) {
    computing += parts_[id].before;
    if (!parts_[id].counts) continue;
    in_window.push_back(parts_[id].submissions);
    in_session.push_back(names[id].submitted);
  }
  const auto steps = static_cast<std::int64_t>(median(in_window));
  if (steps < (length < longest_window ? fewest_steps : 1)) return std::nullopt;
  const double seconds = std::chrono::duration<double>(length).count();
  PaceReport report{.ranks = {{.steps = median(in_session),
                               .step = length / steps,
                               .computing = computing / steps,
                               .bytes_per_second = static_cast<std::uint64_t>(
                                   static_cast<double>(bytes_) / seconds)}}};
  for (const std::uint32_t id : touched_) {
    const std::chrono::nanoseconds before = parts_[id].before / steps;
    if (before < report.ranks.front().step / smallest_part || names[id].text == nullptr) continue;
    report.operations.push_back({.name = parts_[id].counts ? *names[id].text : "",
                                 .set = names[id].set,
                                 .longest = before,
                                 .sum = before});
  }
  begin(now);
  return report;
}

void PaceMeter::begin(TimePoint now) {
  for (const std::uint32_t id : touched_) parts_[id] = {};
  touched_.clear();
  began_ = now;
  bytes_ = 0;
}

}  // namespace kolo::internal::diagnostics
