// SPDX-License-Identifier: Apache-2.0
#include "session/pace/straggler_search.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace kolo::internal::session {
namespace {

using std::chrono::nanoseconds;

// A rank is a straggler after this many windows in a row, and this long.
constexpr int windows_until_sure = 3;
constexpr std::chrono::seconds time_until_sure{1};
// Ranks differ by a little all the time.
constexpr nanoseconds least_late = std::chrono::milliseconds(1);

// Ranks that wait for each other have steps of equal length. Those of other process sets may have
// steps of their own, and are not compared.
constexpr double similar = 1.2;

/// A rank that computes longer than the mean of those with similar steps.
struct Candidate {
  RankPace pace{};
  nanoseconds late{};
  std::int64_t others = 0;  // with similar steps
};

Candidate find_latest(std::vector<RankPace> known) {
  std::ranges::sort(known, {}, &RankPace::step);
  const auto longer = [](nanoseconds step, double times) {
    return std::chrono::duration<double, std::nano>(step) * times;
  };
  Candidate latest;
  std::size_t first = 0;  // the ranks from `first` until `end` have similar steps
  std::size_t end = 0;
  nanoseconds sum{};
  for (const RankPace& pace : known) {
    while (end < known.size() && known[end].step <= longer(pace.step, similar))
      sum += known[end++].computing;
    while (pace.step > longer(known[first].step, similar)) sum -= known[first++].computing;
    const auto others = static_cast<std::int64_t>(end - first) - 1;
    if (others == 0) continue;
    const nanoseconds late = pace.computing - (sum - pace.computing) / others;
    if (late > latest.late) latest = {pace, late, others};
  }
  return latest;
}

/// The operation before which the rank is late; none if no operation accounts for a good part of
/// it. If several ranks are late before it, only the latest is known by its number.
std::optional<std::string> slow_operation_of(const Candidate& slow, const PaceReport& all) {
  std::pair most(false, nanoseconds(0));  // whether the rank is known to be late, and by how much
  std::optional<std::string> name;
  for (const OperationPace& pace : all.operations) {
    const nanoseconds late = pace.longest - (pace.sum - pace.longest) / slow.others;
    const std::pair its(pace.slowest == slow.pace.rank, late);
    if (late < slow.late / (its.first ? 4 : 2) || its < most) continue;
    most = its;
    name = pace.name;
  }
  return name;
}

}  // namespace

std::string StragglerSearch::in_words(const PaceReport& all) const {
  if (percent_ == 0) return "stragglers are not looked for (straggler_warning is 0)";
  const auto known =
      std::ranges::count_if(all.ranks, [](const RankPace& pace) { return pace.steps > 0; });
  return known < 2 ? "no two ranks have made enough steps to compare them"
                   : "no rank makes the others wait";
}

std::optional<Straggler> StragglerSearch::find(const PaceReport& all, TimePoint now) {
  std::vector<RankPace> known;
  std::ranges::copy_if(all.ranks, std::back_inserter(known),
                       [](const RankPace& pace) { return pace.steps > 0; });
  const Candidate slow = find_latest(std::move(known));
  if (percent_ == 0 || slow.late < least_late || slow.late * 100 < slow.pace.step * percent_) {
    streak_ = {};
    return std::nullopt;
  }
  const RankPace& pace = slow.pace;
  if (streak_.straggler.rank != pace.rank)
    streak_ = {.straggler = {.rank = pace.rank, .late = slow.late, .since_step = pace.steps},
               .since = now};
  if (streak_.steps != pace.steps) {
    streak_.steps = pace.steps;
    ++streak_.windows;
    streak_.straggler.late = (streak_.straggler.late + slow.late) / 2;
    streak_.straggler.step = pace.step;
    streak_.straggler.tensor = slow_operation_of(slow, all);
  }
  if (streak_.windows < windows_until_sure || now - streak_.since < time_until_sure)
    return std::nullopt;
  return streak_.straggler;
}

}  // namespace kolo::internal::session
