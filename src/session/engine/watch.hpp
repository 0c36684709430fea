// SPDX-License-Identifier: Apache-2.0
// Watches waits outside negotiation: a batch in progress, a plan that does not end, an ancestor in
// the tree that does not respond.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/session_clock.hpp"
#include "base/settings.hpp"
#include "negotiation/stall/explain.hpp"
#include "session/engine/status_board.hpp"

namespace kolo::internal::session {

/// A wait of this rank for others. It becomes a failure after `stall_shutdown`.
struct PendingWait {
  std::string what;    // the work that waits: `batch 7 (allreduce "x", 4.0 MB)`
  std::string tensor;  // the name of its first tensor; "": none
  SessionClock::TimePoint since;
  RankSet awaited{};
  std::string awaits{};        // the awaited action: "to deposit piece 3"
  std::optional<Key> batch{};  // an operation of the batch that waits
  int silent_ancestor = -1;    // rank above this one that does not respond
};

/// Reports waits that last too long. If several ranks of a host have the same wait, the lowest
/// responsive rank reports it.
class Watch {
 public:
  using TimePoint = SessionClock::TimePoint;

  /// Asks the ranks of all hosts what they do; null until they have had time to answer.
  using Ask = std::function<const negotiation::Statuses*(const Key&)>;

  /// The references outlive the object. `ask`: on the root; empty elsewhere.
  Watch(const StatusBoard& board, int rank, const Settings& settings, const SessionClock& clock,
        Ask ask)
      : board_(board), rank_(rank), settings_(settings), clock_(clock), ask_(std::move(ask)) {}

  /// Call this ten times a second with all waits. Warns once about each wait that lasts, and again
  /// if its description has changed. Returns the stall if a wait has lasted too long.
  [[nodiscard]] std::optional<Failure> check(const std::vector<PendingWait>& pending_waits);

  /// The ranks for which this one has waited for at least half of `stall_shutdown`: another rank
  /// may have found the stall first.
  [[nodiscard]] RankSet awaited_for_long(const std::vector<PendingWait>& pending_waits) const;

 private:
  struct Warning {
    std::string text{};
    TimePoint at{};
  };

  [[nodiscard]] std::optional<Failure> find_culprits(const PendingWait& pending_wait) const;
  [[nodiscard]] negotiation::Statuses read_host() const;
  [[nodiscard]] std::string describe(const PendingWait& pending_wait,
                                     const negotiation::Statuses& statuses, bool times,
                                     bool all_asked = false) const;
  [[nodiscard]] bool is_mine_to_report() const;

  const StatusBoard& board_;
  int rank_;
  const Settings& settings_;
  const SessionClock& clock_;
  Ask ask_;
  std::map<std::string, Warning> warned_{};  // by `PendingWait::what`
};

}  // namespace kolo::internal::session
