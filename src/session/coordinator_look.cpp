// What a rank looks after ten times a second: it says what it does, sees who was lost, and explains
// what does not move.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/dtype.hpp"
#include "base/format.hpp"
#include "negotiation/explain.hpp"
#include "node/process_state.hpp"
#include "session/coordinator.hpp"

namespace kolo::session {
namespace {

using negotiation::FailureKind;
using negotiation::RankStatus;
using std::chrono::milliseconds;

constexpr milliseconds look_interval{100};

/// After a process has ended, what it had sent before is read first.
constexpr milliseconds time_to_read{50};

/// Looks at which nothing has moved before a rank that waits counts as blocked: what is on its way
/// has come by then.
constexpr int quiet_enough = 5;
/// The same while another thread of the process runs: it may be about to submit something for the
/// first time, and be short of processor time.
constexpr int quiet_enough_for_all = 50;

/// Who did not look for so long was stopped, or had no processor.
constexpr std::chrono::seconds longest_absence{2};

std::string in_bytes(double bytes) {
  if (bytes < 1024) return fmt::format("{:.0f} B", bytes);
  if (bytes < 1024 * 1024) return fmt::format("{:.1f} KiB", bytes / 1024);
  return fmt::format("{:.1f} MiB", bytes / (1024 * 1024));
}

}  // namespace

void Coordinator::look() {
  if (looked_at_ != TimePoint{} && now_ - looked_at_ > longest_absence)
    forgive_lost_time(now_ - looked_at_);
  looked_at_ = now_;
  next_look_ = now_ + look_interval;
  negotiator_.on_time(now_);
  publish_status();
  if (negotiator_.ended() || heed_endings() || heed_losses()) return;
  send_beats();
  if (const std::optional<Watch::Stall> stall = watch_.look(obstacles(), now_))
    return fail_everything(
        {Breakdown::Kind::stalled, stall->text, stall->ranks.to_vector(), stall->tensor});
  if (parent_ < 0) look_for_deadlock();
}

/// Nobody is to be blamed for the time in which this rank did not look.
void Coordinator::forgive_lost_time(std::chrono::nanoseconds lost) {
  for (Running& running : running_) running.moved_at += lost;
  plan_awaited_since_ = stayers_awaited_since_ = now_;
  heartbeat_.forgive(now_);
}

/// True if another rank of this host has said that nothing can go on.
bool Coordinator::heed_endings() {
  for (const int rank : board_.ended()) {
    const RankStatus status = board_.read_rank(rank, now_);
    if (status.ending.kind == FailureKind::shut_down) continue;  // it left, and the log says so
    const auto kind = status.ending.kind == FailureKind::stalled ? Breakdown::Kind::stalled
                                                                 : Breakdown::Kind::peer_left;
    fail_everything({kind, status.ending.reason, status.ending.culprits.to_vector()});
    return true;
  }
  return false;
}

/// True if a process of this host has ended. The culprit is who ended first.
bool Coordinator::heed_losses() {
  RankSet silent;  // they ended without a word
  RankSet leavers;
  std::string last_words;
  for (const int rank : lost_) {
    const RankStatus status = board_.read_rank(rank, now_);
    if (!status.ended) {
      silent.insert(RankSet::of(rank));
    } else {
      leavers.insert(RankSet::of(rank));
      last_words = fmt::format("rank {} left the session: {}", rank, status.ending.reason);
    }
  }
  if (!silent.empty()) {
    const bool one = silent.count() == 1;
    fail_everything({Breakdown::Kind::peer_left,
                     fmt::format("the process{} of {} ended without leaving the session",
                                 one ? "" : "es", negotiation::ranks_in_words(silent)),
                     silent.to_vector()});
  } else if (!leavers.empty()) {
    fail_everything({Breakdown::Kind::peer_left, last_words, leavers.to_vector()});
  }
  lost_ = links_.lost_ranks();
  if (!lost_.empty()) next_look_ = now_ + time_to_read;
  return failed();
}

void Coordinator::publish_status() {
  const std::uint64_t progress = submissions_ + finished_;
  quiet_looks_ = std::exchange(progress_, progress) == progress ? quiet_looks_ + 1 : 0;
  RankStatus status{.rank = rank_, .waits = presence_.any_waits()};
  for (const Pending& pending : negotiating_) {
    if (pending.operation == nullptr) continue;
    ++status.pending;
    const detail::Operation& operation = *pending.operation;
    status.operations.push_back({operation.key(), operation.descriptor().type,
                                 std::chrono::duration_cast<milliseconds>(now_ - pending.since)});
  }
  const auto listed =
      static_cast<std::ptrdiff_t>(std::min(status.operations.size(), negotiation::most_listed));
  std::ranges::partial_sort(status.operations, status.operations.begin() + listed,
                            std::ranges::greater(), &negotiation::PendingOperation::waited);
  status.operations.resize(static_cast<std::size_t>(listed));
  if (executing()) {
    backend::Awaited awaited = running_.front().execution->waits_for();
    status.batch = describe(running_.front());
    status.awaited = RankSet::of(awaited.ranks);
    status.awaits = std::move(awaited.what);
  }
  status.blocked = status.pending > 0 && !executing() && quiet_looks_ >= quiet_enough &&
                   presence_.all_wait() && !leaving_ &&
                   (quiet_looks_ >= quiet_enough_for_all || !node::other_threads_run());
  board_.publish(std::move(status), now_, submitted_at_);
}

std::string Coordinator::describe(const Running& running) const {
  const detail::Operation& first = *running.operations.front();
  double bytes = 0.0;
  for (const detail::Operation* operation : running.operations)
    for (const backend::BatchTensor& member : operation->members())
      bytes += static_cast<double>(member.elements()) * static_cast<double>(size_of(member.dtype));
  const std::size_t others = running.operations.size() - 1;
  return fmt::format("batch {} ({}{}{})", running.sequence,
                     negotiation::operation_in_words(first.descriptor().type, first.key()),
                     others == 0 ? "" : fmt::format(" and {} more", others),
                     bytes > 0.0 ? ", " + in_bytes(bytes) : "");
}

std::vector<Obstacle> Coordinator::obstacles() {
  std::vector<Obstacle> obstacles;
  if (executing()) {
    const Running& oldest = running_.front();
    backend::Awaited awaited = oldest.execution->waits_for();
    obstacles.push_back({describe(oldest), oldest.operations.front()->key().name,
                         RankSet::of(awaited.ranks), std::move(awaited.what), oldest.moved_at});
  }
  RankSet stopping = negotiator_.awaited_by_plan();
  if (stopping.empty()) {
    plan_awaited_since_ = now_;
  } else {
    obstacles.push_back({"the end of a plan", "", std::move(stopping), "to stop following it",
                         plan_awaited_since_});
  }
  if (std::optional<Obstacle> stayers = silent_stayers()) obstacles.push_back(std::move(*stayers));
  if (!obstacles.empty()) return obstacles;
  if (std::optional<Obstacle> parent = silent_parent()) obstacles.push_back(std::move(*parent));
  return obstacles;
}

/// Once this rank has left it waits for the others, however long they work; but not for ever if
/// they do nothing.
std::optional<Obstacle> Coordinator::silent_stayers() {
  RankSet silent;
  if (leaving_) {
    for (const RankStatus& status : board_.read_all(now_)) {
      if (status.rank == rank_) continue;
      if (status.silent()) {  // it may have left, and not told all yet
        silent.insert(RankSet::of(status.rank));
      } else if (!status.ended) {  // it works, or will leave
        silent = {};
        break;
      }
    }
  }
  if (silent.empty()) {
    stayers_awaited_since_ = now_;
    return std::nullopt;
  }
  return Obstacle{"the end of the session", "", silent, "to leave it", stayers_awaited_since_};
}

std::optional<Coordinator::Waiting> Coordinator::oldest_waiting() const {
  const Pending* oldest = nullptr;
  for (const Pending& pending : negotiating_)
    if (pending.operation != nullptr && (oldest == nullptr || pending.since < oldest->since))
      oldest = &pending;
  if (oldest == nullptr) return std::nullopt;
  const negotiation::Key& key = oldest->operation->key();
  return Waiting{negotiation::operation_in_words(oldest->operation->descriptor().type, key),
                 key.name, oldest->since};
}

/// This rank's, or of any that learns from it what is agreed.
std::optional<Coordinator::Waiting> Coordinator::oldest_waiting_on_host() const {
  std::optional<Waiting> oldest = oldest_waiting();
  for (const RankStatus& status : board_.read_all(now_)) {
    if (status.rank == rank_ || status.ended || status.operations.empty()) continue;
    const negotiation::PendingOperation& its = status.operations.front();
    if (const TimePoint since = now_ - its.waited; !oldest || since < oldest->since)
      oldest = {negotiation::operation_in_words(its.type, its.key), its.key.name, since};
  }
  return oldest;
}

/// Where the rank above answers nothing, the root will not tell of what is late here.
std::optional<Obstacle> Coordinator::silent_parent() const {
  if (parent_ < 0 || !board_.shows(parent_)) return silent_host_above();
  std::optional<Waiting> oldest = oldest_waiting();
  if (!oldest || !watch_.is_silent(parent_, now_)) return std::nullopt;
  return Obstacle{std::move(oldest->what), std::move(oldest->tensor), RankSet::of(parent_),
                  "to pass on what is agreed", oldest->since};
}

std::optional<Obstacle> Coordinator::silent_host_above() const {
  const std::optional<Heartbeat::Silence> silence = heartbeat_.silence(now_);
  if (!silence) return std::nullopt;
  std::optional<Waiting> oldest = oldest_waiting_on_host();
  if (!oldest && leaving_) oldest = {"the end of the session", "", silence->since};
  if (!oldest) return std::nullopt;
  return Obstacle{std::move(oldest->what), std::move(oldest->tensor), RankSet::of(silence->rank),
                  "to pass on what is agreed; its process says nothing, it may be stopped",
                  std::max(oldest->since, silence->since)};
}

void Coordinator::answer_questions(const std::vector<negotiation::Key>& questions) {
  if (board_.speaks()) negotiator_.on_answer(questions, board_.read_all(now_));
}

void Coordinator::look_for_deadlock() {
  if (board_.blocked(now_) > 1) negotiator_.on_blocked(board_.read_all(now_));
}

std::string Coordinator::describe_others() const {
  negotiation::Statuses statuses;
  RankSet others;
  for (RankStatus& status : board_.read_all(std::chrono::steady_clock::now())) {
    if (status.rank == rank_ || status.ended) continue;
    others.insert(RankSet::of(status.rank));
    statuses.emplace(status.rank, std::move(status));
  }
  return negotiation::describe(others, statuses, {});
}

}  // namespace kolo::session
