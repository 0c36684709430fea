// SPDX-License-Identifier: Apache-2.0
#include "session/engine/watch.hpp"

#include <algorithm>
#include <utility>

#include "base/log.hpp"
#include "negotiation/stall/explain.hpp"

namespace kolo::internal::session {

std::optional<Failure> Watch::check(const std::vector<PendingWait>& pending_waits) {
  const TimePoint now = clock_.now();
  std::erase_if(warned_, [&](const auto& warned) {
    return std::ranges::find(pending_waits, warned.first, &PendingWait::what) ==
           pending_waits.end();
  });
  for (const PendingWait& pending_wait : pending_waits) {
    const auto age = now - pending_wait.since;
    if (settings_.stall_shutdown.count() != 0 && age >= settings_.stall_shutdown)
      return Failure{FailureKind::stalled, describe(pending_wait, true), pending_wait.tensor,
                     pending_wait.awaited};
    if (settings_.stall_warning.count() == 0 || age < settings_.stall_warning) continue;
    Warning& last = warned_[pending_wait.what];
    if (last.at != TimePoint{} && now - last.at < settings_.stall_warning) continue;
    last.at = now;
    std::string text = describe(pending_wait, false);
    if (std::exchange(last.text, text) != text && is_mine_to_report())
      log(LogLevel::warning, describe(pending_wait, true));
  }
  return std::nullopt;
}

RankSet Watch::awaited_for_long(const std::vector<PendingWait>& pending_waits) const {
  RankSet awaited;
  for (const PendingWait& pending_wait : pending_waits)
    if (settings_.stall_shutdown.count() != 0 &&
        2 * (clock_.now() - pending_wait.since) >= settings_.stall_shutdown)
      awaited.insert(pending_wait.awaited);
  return awaited.without(RankSet::of(rank_));
}

std::string Watch::describe(const PendingWait& pending_wait, bool times) const {
  negotiation::Statuses statuses;
  for (negotiation::RankStatus& status : board_.read_all(clock_.real()))
    statuses.emplace(status.rank, std::move(status));
  RankSet seen;
  for (const auto& [rank, status] : statuses) seen.insert(RankSet::of(rank));
  std::string text = pending_wait.what;
  if (times) {
    const auto age =
        std::chrono::duration_cast<std::chrono::milliseconds>(clock_.now() - pending_wait.since);
    text += " has not moved for " + negotiation::in_seconds(age);
  }
  text += ": it waits for ";
  if (!pending_wait.awaited.empty())
    text += negotiation::ranks_in_words(pending_wait.awaited) + ' ';
  text += pending_wait.awaits.empty() ? "to go on" : pending_wait.awaits;
  // Only ranks of this host are visible; the other hosts report theirs.
  return text + negotiation::describe(pending_wait.awaited.common(seen), statuses, {}, times);
}

bool Watch::is_mine_to_report() const {
  for (const negotiation::RankStatus& status : board_.read_all(clock_.real())) {
    const bool busy = status.pending > 0 || !status.batch.empty();
    if (status.rank < rank_ && busy && !status.silent() && !status.ended) return false;
  }
  return true;
}

}  // namespace kolo::internal::session
