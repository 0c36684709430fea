// SPDX-License-Identifier: Apache-2.0
#include "diagnostics/pace_meter.hpp"

#include <algorithm>
#include <utility>

namespace kolo::internal::diagnostics {
namespace {

// A window has several steps, so that one hiccup does not decide, unless steps take very long.
constexpr std::chrono::nanoseconds shortest_window = std::chrono::milliseconds(250);
constexpr std::uint64_t fewest_steps = 5;
constexpr std::chrono::nanoseconds longest_window = std::chrono::seconds(10);
// Operations before which a rank computed for less than this part of its step are left out: the
// report stays small, and they delay no one.
constexpr int smallest_part = 50;
constexpr std::size_t longest_name = 200;

}  // namespace

/// Ends the window if it is long enough.
void PaceMeter::consider(std::uint32_t name, TimePoint now) {
  const std::uint64_t steps = parts_[anchor_].submissions;
  if (name != anchor_) return begin(name, few, now);
  ++anchors_;
  if (!is_whole_) return begin(name, many, now);
  const std::chrono::nanoseconds length = now - began_;
  if (length < shortest_window || (steps < fewest_steps && length < longest_window)) return;
  // A name that is submitted several times per step, or not in each step, would not count steps.
  const std::uint32_t usual = usual_name();
  if (parts_[usual].submissions != steps) {
    begin(usual, many, now);
    is_whole_ = false;
    return;
  }
  Window window{.length = length, .steps = static_cast<std::int64_t>(steps), .bytes = bytes_};
  window.names = touched_;
  for (const std::uint32_t id : touched_) window.parts.push_back(parts_[id]);
  ended_ = std::move(window);
  steps_ += steps;
  begin(name, many, now);
}

/// A name with the median of the submissions. The anchor, if it has that many.
std::uint32_t PaceMeter::usual_name() const {
  std::vector<std::uint32_t> names;
  for (const std::uint32_t id : touched_)
    if (parts_[id].counts) names.push_back(id);
  const auto middle = names.begin() + static_cast<std::ptrdiff_t>(names.size() / 2);
  std::ranges::nth_element(names, middle, {},
                           [this](std::uint32_t id) { return parts_[id].submissions; });
  return parts_[*middle].submissions == parts_[anchor_].submissions ? anchor_ : *middle;
}

void PaceMeter::begin(std::uint32_t anchor, std::uint64_t patience, TimePoint now) {
  for (const std::uint32_t id : touched_) parts_[id] = {};
  touched_.clear();
  anchor_ = anchor;
  ++anchors_;
  patience_ = patience;
  has_begun_ = is_whole_ = true;
  began_ = now;
  bytes_ = 0;
}

std::optional<PaceReport> PaceMeter::take(const Names& names) {
  if (!ended_) return std::nullopt;
  const Window window = *std::exchange(ended_, std::nullopt);
  RankPace pace{.steps = steps_, .step = window.length / window.steps};
  const double seconds = std::chrono::duration<double>(window.length).count();
  pace.bytes_per_second = static_cast<std::uint64_t>(static_cast<double>(window.bytes) / seconds);
  PaceReport report;
  for (std::size_t i = 0; i < window.names.size(); ++i) {
    const std::chrono::nanoseconds before = window.parts[i].before / window.steps;
    const Names::Entry& entry = names[window.names[i]];
    pace.computing += before;
    // A name without a text was forgotten meanwhile.
    if (before < pace.step / smallest_part || entry.text == nullptr) continue;
    report.operations.push_back(
        {.name = window.parts[i].counts ? entry.text->substr(0, longest_name) : "",
         .set = entry.set,
         .longest = before,
         .sum = before});
  }
  report.ranks.push_back(std::move(pace));
  return report;
}

}  // namespace kolo::internal::diagnostics
