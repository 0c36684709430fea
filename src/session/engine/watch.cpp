// SPDX-License-Identifier: Apache-2.0
#include "session/engine/watch.hpp"

#include <algorithm>
#include <utility>

#include "base/log.hpp"
#include "negotiation/stall/explain.hpp"
#include "negotiation/stall/explain_stall.hpp"

namespace kolo::internal::session {

std::optional<Failure> Watch::check(const std::vector<Obstacle>& obstacles, TimePoint now) {
  std::erase_if(warned_, [&](const auto& warned) {
    return std::ranges::find(obstacles, warned.first, &Obstacle::what) == obstacles.end();
  });
  for (const Obstacle& obstacle : obstacles) {
    const auto age = now - obstacle.since;
    if (limits_.shutdown.count() != 0 && age >= limits_.shutdown)
      return Failure{FailureKind::stalled, describe(obstacle, now, true), obstacle.tensor,
                     obstacle.awaited};
    if (limits_.warning.count() == 0 || age < limits_.warning) continue;
    Warning& last = warned_[obstacle.what];
    if (last.at != TimePoint{} && now - last.at < limits_.warning) continue;
    last.at = now;
    std::string text = describe(obstacle, now, false);
    if (std::exchange(last.text, text) != text && is_mine_to_report(now))
      log(LogLevel::warning, describe(obstacle, now, true));
  }
  return std::nullopt;
}

RankSet Watch::awaited_for_long(const std::vector<Obstacle>& obstacles, TimePoint now) const {
  RankSet awaited;
  for (const Obstacle& obstacle : obstacles)
    if (limits_.shutdown.count() != 0 && 2 * (now - obstacle.since) >= limits_.shutdown)
      awaited.insert(obstacle.awaited);
  return awaited.without(RankSet::of(rank_));
}

bool Watch::is_silent(int rank, TimePoint now) const {
  const negotiation::RankStatus status = board_.read_rank(rank, now);
  return status.process != 0 && status.silent();
}

std::string Watch::describe(const Obstacle& obstacle, TimePoint now, bool times) const {
  negotiation::Statuses statuses;
  for (negotiation::RankStatus& status : board_.read_all(now))
    statuses.emplace(status.rank, std::move(status));
  RankSet seen;
  for (const auto& [rank, status] : statuses) seen.insert(RankSet::of(rank));
  std::string text = obstacle.what;
  if (times) {
    const auto age = std::chrono::duration_cast<std::chrono::milliseconds>(now - obstacle.since);
    text += " has not moved for " + negotiation::in_seconds(age);
  }
  text += ": it waits for ";
  if (!obstacle.awaited.empty()) text += negotiation::ranks_in_words(obstacle.awaited) + ' ';
  text += obstacle.awaits.empty() ? "to go on" : obstacle.awaits;
  // Ranks of other hosts are not visible here; their own hosts report them.
  return text + negotiation::describe(obstacle.awaited.common(seen), statuses, {}, times);
}

bool Watch::is_mine_to_report(TimePoint now) const {
  for (const negotiation::RankStatus& status : board_.read_all(now)) {
    const bool busy = status.pending > 0 || !status.batch.empty();
    if (status.rank < rank_ && busy && !status.silent() && !status.ended) return false;
  }
  return true;
}

}  // namespace kolo::internal::session
