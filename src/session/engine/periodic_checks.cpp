// SPDX-License-Identifier: Apache-2.0
// The checks that a rank makes ten times a second: it publishes its status, notices lost ranks, and
// explains operations that do not move.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/dtype.hpp"
#include "base/format.hpp"
#include "negotiation/stall/explain.hpp"
#include "node/other_process.hpp"
#include "session/engine/progress_engine.hpp"

namespace kolo::internal::session {
namespace {

using negotiation::RankStatus;
using std::chrono::milliseconds;

constexpr milliseconds check_interval{100};

/// What this rank's own connections tell of the end of a session comes first: it names the reason.
constexpr std::chrono::seconds time_for_the_reason{1};

/// After a process has ended, what it had sent before is read first.
constexpr milliseconds time_to_read{50};

/// Checks at which nothing has moved before a rank that waits counts as blocked: what is on its way
/// has come by then.
constexpr int quiet_enough = 5;
/// The same while another thread of the process runs: it may be about to submit something for the
/// first time, and be short of processor time.
constexpr int quiet_enough_for_all = 50;

/// A rank that made no checks for so long was stopped, or had no processor.
constexpr std::chrono::seconds max_time_between_checks{2};

}  // namespace

void ProgressEngine::periodic_checks() {
  if (checked_at_ != TimePoint{} && now_ - checked_at_ > max_time_between_checks)
    reset_timers_after_pause(now_ - checked_at_);
  checked_at_ = now_;
  next_checks_ = now_ + check_interval;
  negotiator_.on_time(now_);
  publish_status();
  if (negotiator_.ended() || check_peer_failures() || check_ended_processes() ||
      check_interruption())
    return;
  send_heartbeats();
  if (std::optional<Failure> stall = watch_.check(pending_waits(), now_))
    return fail_session(*std::move(stall));
  if (parent_ < 0 && board_.blocked(now_) > 1) negotiator_.on_blocked(board_.read_all(now_));
}

/// No rank is to be blamed for the time in which this one was stopped.
void ProgressEngine::reset_timers_after_pause(std::chrono::nanoseconds pause) {
  for (Running& running : running_) running.moved_at += pause;
  plan_awaited_since_ = others_awaited_since_ = now_;
  heartbeat_.reset_after_pause(now_);
}

/// True if another rank of this host has published that its session failed.
bool ProgressEngine::check_peer_failures() {
  for (const int rank : board_.ended()) {
    // Its reason may be unreadable, but not that its session has ended.
    Failure why = board_.read_rank(rank, now_)
                      .ended.value_or(Failure{FailureKind::peer_left,
                                              fmt::format("rank {} ended its session", rank), "",
                                              RankSet::of(rank)});
    if (why.kind == FailureKind::shut_down) continue;  // it left, as the log reports
    fail_session(std::move(why));
    return true;
  }
  return false;
}

/// True if a process of this host has ended. Ranks that ended without a word are to blame before
/// those that had left: these may have gone because of the others.
bool ProgressEngine::check_ended_processes() {
  RankSet silent;
  RankSet leavers;
  std::string last_words;
  for (const int rank : lost_) {
    const RankStatus status = board_.read_rank(rank, now_);
    (status.ended ? leavers : silent).insert(RankSet::of(rank));
    if (status.ended)
      last_words = fmt::format("rank {} left the session: {}", rank, status.ended->message);
  }
  if (!lost_.empty()) lost_a_process_ = true;
  if (!silent.empty()) {
    fail_session({FailureKind::peer_left,
                  fmt::format("the process{} of {} ended without leaving the session",
                              silent.count() == 1 ? "" : "es", negotiation::ranks_in_words(silent)),
                  "", silent});
  } else if (!leavers.empty()) {
    fail_session({FailureKind::peer_left, last_words, "", leavers});
  }
  // Blamed at the next checks: what they had sent, a departure perhaps, is read first.
  lost_ = links_.lost_ranks();
  if (!lost_.empty()) next_checks_ = now_ + time_to_read;
  return failed();
}

/// True if the session was ended from outside, and this rank has noticed nothing itself: the host
/// of a lost rank may be cut off, and its connections are silent.
bool ProgressEngine::check_interruption() {
  std::optional<Failure> over = links_.interruption();
  if (!over) return false;
  if (!interrupted_at_) interrupted_at_ = now_;
  if (now_ - *interrupted_at_ < time_for_the_reason) return false;
  fail_session(*std::move(over));
  return true;
}

void ProgressEngine::publish_status() {
  const std::uint64_t progress = submissions_ + finished_;
  quiet_checks_ = std::exchange(progress_, progress) == progress ? quiet_checks_ + 1 : 0;
  RankStatus status{.rank = rank_, .waits = presence_.any_waits()};
  // Only what is listed is copied: many thousands may be pending.
  std::vector<const Pending*> oldest;
  for (const Pending& pending : negotiating_)
    if (pending.operation != nullptr) oldest.push_back(&pending);
  status.pending = static_cast<int>(oldest.size());
  const auto listed = static_cast<std::ptrdiff_t>(std::min(oldest.size(), negotiation::max_listed));
  std::ranges::partial_sort(oldest, oldest.begin() + listed, std::ranges::less(), &Pending::since);
  oldest.resize(static_cast<std::size_t>(listed));
  for (const Pending* pending : oldest)
    status.operations.push_back({pending->operation->key(), pending->operation->descriptor().type,
                                 std::chrono::duration_cast<milliseconds>(now_ - pending->since)});
  if (executing()) {
    backend::Awaited awaited = running_.front().execution->waits_for();
    status.batch = describe(running_.front());
    status.awaited = RankSet::of(awaited.ranks);
    status.awaits = std::move(awaited.what);
  }
  status.blocked = status.pending > 0 && !executing() && quiet_checks_ >= quiet_enough &&
                   presence_.all_wait() && !leaving_ &&
                   (quiet_checks_ >= quiet_enough_for_all || !node::other_threads_run());
  board_.publish(std::move(status), now_, submitted_at_);
}

std::string ProgressEngine::describe(const Running& running) const {
  const detail::Operation& first = *running.operations.front();
  double bytes = 0.0;
  for (const detail::Operation* operation : running.operations)
    for (const backend::BatchTensor& member : operation->members())
      bytes += static_cast<double>(member.elements()) * static_cast<double>(size_of(member.dtype));
  const std::size_t others = running.operations.size() - 1;
  return fmt::format("batch {} ({}{}{})", running.sequence,
                     negotiation::operation_in_words(first.descriptor().type, first.key()),
                     others == 0 ? "" : fmt::format(" and {} more", others),
                     bytes > 0.0 ? ", " + diagnostics::in_bytes(bytes) : "");
}

std::vector<PendingWait> ProgressEngine::pending_waits() {
  std::vector<PendingWait> pending_waits;
  if (executing()) {
    const Running& oldest = running_.front();
    backend::Awaited awaited = oldest.execution->waits_for();
    pending_waits.push_back({describe(oldest), oldest.operations.front()->key().name,
                             oldest.moved_at, RankSet::of(awaited.ranks), std::move(awaited.what)});
  }
  RankSet stopping = negotiator_.awaited_by_plan();
  if (stopping.empty()) {
    plan_awaited_since_ = now_;
  } else {
    pending_waits.push_back({"the end of a plan", "", plan_awaited_since_, std::move(stopping),
                             "to stop following it"});
  }
  if (std::optional<PendingWait> ranks = unresponsive_ranks())
    pending_waits.push_back(*std::move(ranks));
  if (!pending_waits.empty()) return pending_waits;
  if (std::optional<PendingWait> above = unresponsive_parent())
    pending_waits.push_back(*std::move(above));
  return pending_waits;
}

/// After leaving, this rank waits for the others as long as they work, but not forever if they do
/// not respond.
std::optional<PendingWait> ProgressEngine::unresponsive_ranks() {
  RankSet silent;
  if (leaving_) {
    for (const RankStatus& status : board_.read_all(now_)) {
      if (status.rank == rank_) continue;
      if (status.silent()) {  // it may have left, and some ranks may not know yet
        silent.insert(RankSet::of(status.rank));
      } else if (!status.ended) {  // it works, or will leave
        silent = {};
        break;
      }
    }
  }
  if (silent.empty()) {
    others_awaited_since_ = now_;
    return std::nullopt;
  }
  return PendingWait{"the end of the session", "", others_awaited_since_, silent, "to leave it"};
}

std::optional<PendingWait> ProgressEngine::oldest_waiting() const {
  const Pending* oldest = nullptr;
  for (const Pending& pending : negotiating_)
    if (pending.operation != nullptr && (oldest == nullptr || pending.since < oldest->since))
      oldest = &pending;
  if (oldest == nullptr) return std::nullopt;
  const Key& key = oldest->operation->key();
  return PendingWait{negotiation::operation_in_words(oldest->operation->descriptor().type, key),
                     key.name, oldest->since};
}

/// This rank's, or of any that learns from it what is agreed.
std::optional<PendingWait> ProgressEngine::oldest_waiting_on_host() const {
  std::optional<PendingWait> oldest = oldest_waiting();
  for (const RankStatus& status : board_.read_all(now_)) {
    if (status.rank == rank_ || status.ended || status.operations.empty()) continue;
    const negotiation::WaitingOperation& its = status.operations.front();
    if (const TimePoint since = now_ - its.waited; !oldest || since < oldest->since)
      oldest = {negotiation::operation_in_words(its.type, its.key), its.key.name, since};
  }
  return oldest;
}

/// Where the rank above answers nothing, the root will not report what is late here.
std::optional<PendingWait> ProgressEngine::unresponsive_parent() const {
  if (parent_ < 0 || !board_.shows(parent_)) return unresponsive_ancestor();
  std::optional<PendingWait> oldest = oldest_waiting();
  if (!oldest || !watch_.is_silent(parent_, now_)) return std::nullopt;
  oldest->awaited = RankSet::of(parent_);
  oldest->awaits = "to pass on what is agreed";
  return oldest;
}

std::optional<PendingWait> ProgressEngine::unresponsive_ancestor() const {
  const std::optional<HeartbeatMonitor::Silence> silence = heartbeat_.silence(now_);
  if (!silence) return std::nullopt;
  std::optional<PendingWait> oldest = oldest_waiting_on_host();
  if (!oldest && leaving_) oldest = {"the end of the session", "", silence->since};
  if (!oldest) return std::nullopt;
  oldest->since = std::max(oldest->since, silence->since);
  oldest->awaited = RankSet::of(silence->rank);
  oldest->awaits = "to pass on what is agreed; its process does not respond, it may be stopped";
  return oldest;
}

std::string ProgressEngine::describe_others() const {
  negotiation::Statuses statuses;
  RankSet others;
  for (RankStatus& status : board_.read_all(std::chrono::steady_clock::now())) {
    if (status.rank == rank_ || status.ended) continue;
    others.insert(RankSet::of(status.rank));
    statuses.emplace(status.rank, std::move(status));
  }
  return negotiation::describe(others, statuses, {});
}

}  // namespace kolo::internal::session
