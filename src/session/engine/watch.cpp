// SPDX-License-Identifier: Apache-2.0
#include "session/engine/watch.hpp"

#include <algorithm>
#include <utility>

#include "base/log.hpp"
#include "negotiation/stall/explain.hpp"

namespace kolo::internal::session {
namespace {

/// The time after `stall_shutdown` in which the root asks all hosts who waits for whom.
constexpr std::chrono::milliseconds time_for_the_root{1500};

}  // namespace

std::optional<Failure> Watch::check(const std::vector<PendingWait>& pending_waits) {
  const TimePoint now = clock_.now();
  std::erase_if(warned_, [&](const auto& warned) {
    return std::ranges::find(pending_waits, warned.first, &PendingWait::what) ==
           pending_waits.end();
  });
  for (const PendingWait& pending_wait : pending_waits) {
    const auto age = now - pending_wait.since;
    if (settings_.stall_shutdown.count() != 0 && age >= settings_.stall_shutdown)
      if (std::optional<Failure> stall = find_culprits(pending_wait)) return stall;
    if (settings_.stall_warning.count() == 0 || age < settings_.stall_warning) continue;
    Warning& last = warned_[pending_wait.what];
    if (last.at != TimePoint{} && now - last.at < settings_.stall_warning) continue;
    last.at = now;
    const negotiation::Statuses statuses = read_host();
    std::string text = describe(pending_wait, statuses, false);
    if (std::exchange(last.text, text) != text && is_mine_to_report())
      log(LogLevel::warning, describe(pending_wait, statuses, true));
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

/// The stall, with the ranks that cause it. Ranks of other hosts may be awaited because they wait
/// themselves, so the root asks them first. Null while they may still answer.
std::optional<Failure> Watch::find_culprits(const PendingWait& pending_wait) const {
  negotiation::Statuses statuses = read_host();
  RankSet blamed;
  bool all_asked = false;
  if (pending_wait.batch &&
      !negotiation::find_wait_ends(pending_wait.awaited, statuses).unknown.empty()) {
    if (pending_wait.silent_ancestor >= 0) {  // it passes on neither questions nor answers
      blamed = RankSet::of(pending_wait.silent_ancestor);
    } else if (ask_) {
      const negotiation::Statuses* const answers = ask_(*pending_wait.batch);
      if (answers == nullptr) return std::nullopt;
      statuses.insert(answers->begin(), answers->end());
      all_asked = true;
    } else if (clock_.now() - pending_wait.since < settings_.stall_shutdown + time_for_the_root) {
      return std::nullopt;
    }
  }
  std::string text = describe(pending_wait, statuses, true, all_asked);
  if (blamed.empty()) {
    blamed = negotiation::culprits(pending_wait.awaited, statuses);
  } else {
    text += "\n  " + ranks_in_words(blamed) + ": no response, it may be stopped";
  }
  return Failure{FailureKind::stalled, std::move(text), pending_wait.tensor, std::move(blamed)};
}

negotiation::Statuses Watch::read_host() const {
  negotiation::Statuses statuses;
  for (negotiation::RankStatus& status : board_.read_all(clock_.real()))
    statuses.emplace(status.rank, std::move(status));
  return statuses;
}

/// Without `all_asked`, `statuses` are those of this host; the other hosts report theirs.
std::string Watch::describe(const PendingWait& pending_wait, const negotiation::Statuses& statuses,
                            bool times, bool all_asked) const {
  std::string text = pending_wait.what;
  if (times) {
    const auto age =
        std::chrono::duration_cast<std::chrono::milliseconds>(clock_.now() - pending_wait.since);
    text += " has not moved for " + negotiation::in_seconds(age);
  }
  text += ": it waits for ";
  if (!pending_wait.awaited.empty()) text += ranks_in_words(pending_wait.awaited) + ' ';
  text += pending_wait.awaits.empty() ? "to go on" : pending_wait.awaits;
  return text + negotiation::describe(pending_wait.awaited, statuses, {}, times, all_asked);
}

bool Watch::is_mine_to_report() const {
  for (const negotiation::RankStatus& status : board_.read_all(clock_.real())) {
    const bool busy = status.pending > 0 || !status.batch.empty();
    if (status.rank < rank_ && busy && !status.silent() && !status.ended) return false;
  }
  return true;
}

}  // namespace kolo::internal::session
