// SPDX-License-Identifier: Apache-2.0
// Watches pending_waits outside negotiation: a batch in progress, a plan that does not end, a rank
// above that does not respond.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "session/engine/status_board.hpp"

namespace kolo::internal::session {

/// What this rank waits for. It becomes a failure if it lasts.
struct PendingWait {
  std::string what;    // that waits: `batch 7 (allreduce "x", 4.0 MB)`
  std::string tensor;  // "": none
  std::chrono::steady_clock::time_point since;
  RankSet awaited{};
  std::string awaits{};  // "to deposit piece 3"
};

/// If several ranks of a host meet the same pending_wait, the lowest responsive one reports it.
class Watch {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  struct Limits {
    std::chrono::nanoseconds warning{};   // 0: never
    std::chrono::nanoseconds shutdown{};  // 0: never
  };

  Watch(const StatusBoard& board, int rank, const Limits& limits)
      : board_(board), rank_(rank), limits_(limits) {}

  /// Call this ten times a second with all pending_waits. Warns once of each that lasts, and again
  /// if its description has changed. Returns the stall if one has lasted too long.
  [[nodiscard]] std::optional<Failure> check(const std::vector<PendingWait>& pending_waits,
                                             TimePoint now);

  /// The ranks for which this one has waited for at least half of the time that is a stall: another
  /// rank's watch may have found it first.
  [[nodiscard]] RankSet awaited_for_long(const std::vector<PendingWait>& pending_waits,
                                         TimePoint now) const;

  /// Whether a rank on the board neither does nor answers anything.
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
  Limits limits_;
  std::map<std::string, Warning> warned_{};  // by what waits
};

}  // namespace kolo::internal::session
