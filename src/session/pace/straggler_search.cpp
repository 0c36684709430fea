// SPDX-License-Identifier: Apache-2.0
#include "session/pace/straggler_search.hpp"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <string>
#include <vector>

namespace kolo::internal::session {
namespace {

using std::chrono::nanoseconds;

// A rank is a straggler after this many windows in a row, and this long.
constexpr int windows_until_sure = 3;
constexpr std::chrono::seconds time_until_sure{1};
// Ranks differ by a little all the time.
constexpr nanoseconds least_late = std::chrono::milliseconds(1);

/// The operation before which the rank is late, compared with the mean of the others.
std::string slow_operation_of(int rank, const PaceReport& all, std::int64_t others) {
  nanoseconds most{-1};
  std::string name;
  for (const OperationPace& pace : all.operations) {
    const nanoseconds late = pace.longest - (pace.sum - pace.longest) / others;
    if (pace.slowest != rank || late <= most) continue;
    most = late;
    name = pace.name;
  }
  return name;
}

}  // namespace

std::optional<Straggler> StragglerSearch::find(const PaceReport& all, TimePoint now) {
  std::vector<RankPace> known;
  std::ranges::copy_if(all.ranks, std::back_inserter(known),
                       [](const RankPace& pace) { return pace.steps > 0; });
  if (percent_ == 0 || known.size() < 2) return std::nullopt;
  const RankPace& slow = *std::ranges::max_element(known, {}, &RankPace::computing);
  const auto others = static_cast<std::int64_t>(known.size()) - 1;
  nanoseconds sum{};
  for (const RankPace& pace : known) sum += pace.computing;
  const nanoseconds late = slow.computing - (sum - slow.computing) / others;
  if (late < least_late || late * 100 < slow.step * percent_) {
    streak_ = {};
    return std::nullopt;
  }
  if (streak_.straggler.rank != slow.rank)
    streak_ = {.straggler = {.rank = slow.rank, .late = late, .since_step = slow.steps},
               .since = now};
  if (streak_.steps != slow.steps) {
    streak_.steps = slow.steps;
    ++streak_.windows;
    streak_.straggler.late = (streak_.straggler.late + late) / 2;
    streak_.straggler.step = slow.step;
    streak_.straggler.tensor = slow_operation_of(slow.rank, all, others);
  }
  if (streak_.windows < windows_until_sure || now - streak_.since < time_until_sure)
    return std::nullopt;
  return streak_.straggler;
}

}  // namespace kolo::internal::session
