// SPDX-License-Identifier: Apache-2.0
#include "session/engine/health_checks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "negotiation/stall/explain.hpp"
#include "negotiation/wire/codec.hpp"
#include "node/other_process.hpp"

namespace kolo::internal::session {
namespace {

using negotiation::RankStatus;
using std::chrono::milliseconds;

constexpr milliseconds check_interval{100};

/// The delay before a failure that the job's server reports ends the session. Until then, this
/// rank's own connections may report the loss, with a better reason.
constexpr std::chrono::seconds time_for_the_reason{1};

/// The time for reading the last messages of an ended process before the process counts as lost.
constexpr milliseconds time_to_read{50};

/// The time in which the last kernels end after the process of another rank has ended.
constexpr std::chrono::seconds time_for_last_kernels{10};

/// The number of checks without progress after which a waiting rank counts as blocked. Messages in
/// flight have arrived by then.
constexpr int quiet_enough = 5;
/// The same number while another thread of the process runs. That thread may get little processor
/// time and be about to submit its first operation.
constexpr int quiet_enough_for_all = 50;

}  // namespace

HealthChecks::HealthChecks(const Settings& settings, const negotiation::NegotiatorOptions& options,
                           negotiation::Negotiator& negotiator, WorkInProgress& work,
                           LaunchedBatches& launched, Links& links, const Presence& presence,
                           const SessionClock& clock)
    : negotiator_(negotiator),
      work_(work),
      launched_(launched),
      links_(links),
      presence_(presence),
      clock_(clock),
      session_(options.session),
      rank_(options.place.rank),
      parent_(options.place.parent),
      board_(links.seats(), rank_, options.place.ranks),
      heartbeat_(parent_ >= 0 && board_.shows(parent_) ? -1 : parent_, settings, options.now),
      watch_(
          board_, rank_, settings, clock, parent_ >= 0 ? Watch::Ask() : [this](const Key& key) {
            return negotiator_.ask_about_batch(key);
          }) {
  for (const negotiation::Child& child : options.place.children)
    if (!board_.shows(child.rank)) far_children_.push_back(child.rank);
}

std::optional<Failure> HealthChecks::check(const Progress& progress) {
  next_ = clock_.now() + check_interval;
  const bool is_quiet =
      progress.submitted + progress.finished == progress_.submitted + progress_.finished;
  quiet_checks_ = is_quiet ? quiet_checks_ + 1 : 0;
  progress_ = progress;
  negotiator_.on_time(clock_.now());
  publish_status();
  if (negotiator_.ended()) return find_lost_kernels();
  if (auto failure = find_failed_peer()) return failure;
  if (auto failure = find_ended_process()) return failure;
  if (auto failure = find_interruption()) return failure;
  send_heartbeats();
  if (auto stall = watch_.check(pending_waits())) return stall;
  if (parent_ < 0 && board_.blocked(clock_.real()) > 1)
    negotiator_.on_blocked(board_.read_all(clock_.real()));
  return std::nullopt;
}

RankSet HealthChecks::awaited_for_long() { return watch_.awaited_for_long(pending_waits()); }

/// After the end of the negotiation ranks may leave the job, and this one waits only for its GPU. A
/// rank that leaves has seen its own kernels end, so those of the same batch end soon here; if it
/// was killed, they wait for it forever.
std::optional<Failure> HealthChecks::find_lost_kernels() {
  if (launched_.batches().empty()) return std::nullopt;
  if (auto failure = find_interruption()) return failure;
  const LaunchedBatch& oldest = launched_.batches().front();
  const RankSet awaited = RankSet::of(oldest.execution->waits_for().ranks);
  std::vector<int> lost = links_.lost_ranks();
  std::erase_if(lost, [&](int rank) { return !awaited.contains(rank); });
  const RankSet gone = RankSet::of(lost);
  if (gone.empty()) return std::nullopt;
  if (!gone_since_) gone_since_ = clock_.now();
  if (clock_.now() - std::max(*gone_since_, oldest.since) < time_for_last_kernels)
    return std::nullopt;
  return Failure{FailureKind::peer_left,
                 fmt::format("the process{} of {} ended, and this rank's GPU has not finished {} "
                             "{} s later",
                             gone.count() == 1 ? "" : "es", ranks_in_words(gone), oldest.what,
                             time_for_last_kernels.count()),
                 "", gone};
}

/// The failure of another rank of this host, as its status page shows it.
std::optional<Failure> HealthChecks::find_failed_peer() const {
  for (const int rank : board_.ended()) {
    // The reason may be unreadable, but the end of the session is certain.
    Failure why = board_.read_rank(rank, clock_.real())
                      .ended.value_or(Failure{FailureKind::peer_left,
                                              fmt::format("rank {} ended its session", rank), "",
                                              RankSet::of(rank)});
    // A rank that shut down is not a failure: its departure comes through the negotiation.
    if (why.kind != FailureKind::shut_down) return why;
  }
  return std::nullopt;
}

/// The failure if a process of this host has ended. Ranks that ended without leaving the session
/// are blamed before ranks that left it, which may have left because of the former.
std::optional<Failure> HealthChecks::find_ended_process() {
  RankSet silent;
  RankSet leavers;
  std::string last_words;
  for (const int rank : lost_) {
    const RankStatus status = board_.read_rank(rank, clock_.real());
    (status.ended ? leavers : silent).insert(RankSet::of(rank));
    if (!status.ended) continue;
    const std::string& reason = status.ended->message;
    last_words = fmt::format("rank {} left the session: {}", rank, reason);
    if (reason.empty())
      last_words = fmt::format(
          "the process of rank {} ended after it had left the session, before "
          "all ranks had",
          rank);
  }
  found_ended_process_ = !lost_.empty();
  // Processes found now are blamed at the next checks. Until then this rank reads their last
  // messages, which may announce a departure.
  lost_ = links_.lost_ranks();
  if (!lost_.empty()) next_ = clock_.now() + time_to_read;
  if (!silent.empty())
    return Failure{FailureKind::peer_left,
                   fmt::format("the process{} of {} ended without leaving the session",
                               silent.count() == 1 ? "" : "es", ranks_in_words(silent)),
                   "", silent};
  if (!leavers.empty()) return Failure{FailureKind::peer_left, last_words, "", leavers};
  return std::nullopt;
}

/// The reason for which the job's server has ended the session. This rank may not notice the loss
/// by itself: if a lost rank's host is cut off from the network, the connections to it stay silent.
std::optional<Failure> HealthChecks::find_interruption() {
  std::optional<Failure> over = links_.interruption();
  if (!over) return std::nullopt;
  if (!interrupted_at_) interrupted_at_ = clock_.now();
  if (clock_.now() - *interrupted_at_ < time_for_the_reason) return std::nullopt;
  return over;
}

/// Sends a heartbeat to the children that share no memory with this rank, if one is due. Must not
/// be called after the negotiation has ended, because the children may be gone.
void HealthChecks::send_heartbeats() {
  const std::optional<negotiation::Heartbeat> heartbeat =
      heartbeat_.next(clock_.now(), clock_.real());
  if (!heartbeat) return;
  for (const int child : far_children_)
    links_.transport().send(child, negotiation::encode(session_, *heartbeat));
}

void HealthChecks::publish_status() {
  const auto& running = work_.running();
  const auto& launched = launched_.batches();
  RankStatus status{.rank = rank_, .waits = presence_.any_waits()};
  // Many thousands of operations may be pending, so only the listed ones are copied.
  using Pending = WorkInProgress::Negotiating;
  std::vector<const Pending*> oldest;
  for (const Pending& pending : work_.negotiating())
    if (pending.operation != nullptr) oldest.push_back(&pending);
  status.pending = static_cast<int>(oldest.size());
  const auto listed = static_cast<std::ptrdiff_t>(std::min(oldest.size(), negotiation::max_listed));
  std::ranges::partial_sort(oldest, oldest.begin() + listed, std::ranges::less(), &Pending::since);
  oldest.resize(static_cast<std::size_t>(listed));
  for (const Pending* pending : oldest)
    status.operations.push_back(
        {pending->operation->key(), pending->operation->descriptor().type,
         std::chrono::duration_cast<milliseconds>(clock_.now() - pending->since)});
  if (!running.empty()) {
    backend::Awaited awaited = running.front().execution->waits_for();
    status.batch = describe(running.front());
    status.awaited = RankSet::of(awaited.ranks);
    status.awaits = std::move(awaited.what);
  } else if (!launched.empty()) {
    backend::Awaited awaited = launched.front().execution->waits_for();
    status.batch = launched.front().what;
    status.awaited = RankSet::of(awaited.ranks);
    status.awaits = std::move(awaited.what);
  }
  status.blocked = status.pending > 0 && running.empty() && launched.empty() &&
                   quiet_checks_ >= quiet_enough && presence_.all_wait() && !progress_.leaving &&
                   (quiet_checks_ >= quiet_enough_for_all || !node::other_threads_run());
  board_.publish(std::move(status), clock_.real(), progress_.submitted_at);
}

std::vector<PendingWait> HealthChecks::pending_waits() {
  std::vector<PendingWait> pending_waits;
  if (!work_.running().empty()) {
    const RunningBatch& oldest = work_.running().front();
    backend::Awaited awaited = oldest.execution->waits_for();
    const Key& key = oldest.operations.front()->key();
    const std::optional<HeartbeatMonitor::Silence> above = heartbeat_.silence(clock_.now());
    pending_waits.push_back({describe(oldest), key.name, oldest.moved_at,
                             RankSet::of(awaited.ranks), std::move(awaited.what), key,
                             above ? above->rank : -1});
  }
  if (!launched_.batches().empty()) {
    const LaunchedBatch& oldest = launched_.batches().front();
    backend::Awaited awaited = oldest.execution->waits_for();
    pending_waits.push_back({oldest.what, oldest.tensor, oldest.since, RankSet::of(awaited.ranks),
                             std::move(awaited.what)});
  }
  RankSet stopping = negotiator_.awaited_by_plan();
  if (stopping.empty()) {
    plan_awaited_since_ = clock_.now();
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

/// The wait for unresponsive ranks of this host after this rank has left the session. As long as
/// one of the ranks works, there is no such wait.
std::optional<PendingWait> HealthChecks::unresponsive_ranks() {
  RankSet silent;
  if (progress_.leaving) {
    for (const RankStatus& status : board_.read_all(clock_.real())) {
      if (status.rank == rank_) continue;
      if (status.silent()) {  // even if the rank has left: not all ranks may know yet
        silent.insert(RankSet::of(status.rank));
      } else if (!status.ended) {  // this rank works, or will leave
        silent = {};
        break;
      }
    }
  }
  if (silent.empty()) {
    others_awaited_since_ = clock_.now();
    return std::nullopt;
  }
  return PendingWait{"the end of the session", "", others_awaited_since_, silent, "to leave it"};
}

std::optional<PendingWait> HealthChecks::oldest_waiting() const {
  const WorkInProgress::Negotiating* oldest = nullptr;
  for (const WorkInProgress::Negotiating& pending : work_.negotiating())
    if (pending.operation != nullptr && (oldest == nullptr || pending.since < oldest->since))
      oldest = &pending;
  if (oldest == nullptr) return std::nullopt;
  const Key& key = oldest->operation->key();
  return PendingWait{negotiation::operation_in_words(oldest->operation->descriptor().type, key),
                     key.name, oldest->since};
}

std::string HealthChecks::wait_in_words() {
  constexpr std::chrono::seconds long_enough{1};
  std::vector<PendingWait> waits = pending_waits();
  if (auto operation = oldest_waiting()) waits.push_back(*std::move(operation));
  const auto oldest = std::ranges::min_element(waits, {}, &PendingWait::since);
  if (oldest == waits.end() || clock_.now() - oldest->since < long_enough) return "";
  const auto time = std::chrono::floor<std::chrono::seconds>(clock_.now() - oldest->since);
  std::string words = fmt::format("{} for {} s", oldest->what, time.count());
  if (!oldest->awaited.empty())
    words += fmt::format(", for {} {}", ranks_in_words(oldest->awaited), oldest->awaits);
  return words;
}

/// The oldest waiting operation of all ranks of the host. The other ranks learn of agreements
/// through this rank, so they wait for its parent too.
std::optional<PendingWait> HealthChecks::oldest_waiting_on_host() const {
  std::optional<PendingWait> oldest = oldest_waiting();
  for (const RankStatus& status : board_.read_all(clock_.real())) {
    if (status.rank == rank_ || status.ended || status.operations.empty()) continue;
    const negotiation::WaitingOperation& its = status.operations.front();
    if (const TimePoint since = clock_.now() - its.waited; !oldest || since < oldest->since)
      oldest = {negotiation::operation_in_words(its.type, its.key), its.key.name, since};
  }
  return oldest;
}

/// The wait for a parent or more distant ancestor that does not respond. This rank reports it,
/// because the root cannot know of operations that the ancestor does not pass on.
std::optional<PendingWait> HealthChecks::unresponsive_parent() const {
  if (parent_ < 0 || !board_.shows(parent_)) return unresponsive_ancestor();
  const RankStatus parent = board_.read_rank(parent_, clock_.real());
  std::optional<PendingWait> oldest = oldest_waiting();
  if (!oldest || !parent.silent()) return std::nullopt;
  oldest->since = std::max(oldest->since, clock_.now() - parent.heard);
  oldest->awaited = RankSet::of(parent_);
  oldest->awaits = "to pass on what is agreed";
  return oldest;
}

std::optional<PendingWait> HealthChecks::unresponsive_ancestor() const {
  const std::optional<HeartbeatMonitor::Silence> silence = heartbeat_.silence(clock_.now());
  if (!silence) return std::nullopt;
  std::optional<PendingWait> oldest = oldest_waiting_on_host();
  if (!oldest && progress_.leaving) oldest = {"the end of the session", "", silence->since};
  if (!oldest) return std::nullopt;
  oldest->since = std::max(oldest->since, silence->since);
  oldest->awaited = RankSet::of(silence->rank);
  oldest->awaits = "to pass on what is agreed; its process does not respond, it may be stopped";
  return oldest;
}

std::string HealthChecks::describe_others(bool times) const {
  negotiation::Statuses statuses;
  RankSet others;
  for (RankStatus& status : board_.read_all(std::chrono::steady_clock::now())) {
    if (status.rank == rank_ || status.ended) continue;
    others.insert(RankSet::of(status.rank));
    statuses.emplace(status.rank, std::move(status));
  }
  return negotiation::describe(others, statuses, {}, times);
}

}  // namespace kolo::internal::session
