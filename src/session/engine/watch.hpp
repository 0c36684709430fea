// SPDX-License-Identifier: Apache-2.0
// Watches waits outside negotiation: a batch in progress, a plan that does not end, a rank above
// that does not respond.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/settings.hpp"
#include "session/engine/status_board.hpp"

namespace kolo::internal::session {

/// Something that this rank waits for. The wait becomes a failure if it lasts.
struct PendingWait {
  std::string what;    // the waiting thing: `batch 7 (allreduce "x", 4.0 MB)`
  std::string tensor;  // "": none
  std::chrono::steady_clock::time_point since;
  RankSet awaited{};
  std::string awaits{};  // "to deposit piece 3"
};

/// If several ranks of a host have the same wait, the lowest responsive rank reports it.
class Watch {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  /// `board` and `settings` outlive this.
  Watch(const StatusBoard& board, int rank, const Settings& settings)
      : board_(board), rank_(rank), settings_(settings) {}

  /// Call this ten times a second with all waits. Warns once about each wait that lasts, and again
  /// if its description has changed. Returns the stall if a wait has lasted too long.
  [[nodiscard]] std::optional<Failure> check(const std::vector<PendingWait>& pending_waits,
                                             TimePoint now);

  /// The ranks for which this one has waited for at least half of `stall_shutdown`: another rank
  /// may have found the stall first.
  [[nodiscard]] RankSet awaited_for_long(const std::vector<PendingWait>& pending_waits,
                                         TimePoint now) const;

  /// True if a rank on the board does nothing and answers nothing.
  [[nodiscard]] bool is_silent(int rank, TimePoint now) const;

 private:
  struct Warning {
    std::string text{};
    TimePoint at{};
  };

  [[nodiscard]] std::string describe(const PendingWait& pending_wait, TimePoint now,
                                     bool times) const;
  [[nodiscard]] bool is_mine_to_report(TimePoint now) const;

  const StatusBoard& board_;
  int rank_;
  const Settings& settings_;
  std::map<std::string, Warning> warned_{};  // by `PendingWait::what`
};

}  // namespace kolo::internal::session
