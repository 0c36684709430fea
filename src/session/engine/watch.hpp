// Looks after what keeps this rank from going on and is no matter of negotiation: a batch under
// way, a plan that does not end, a rank above that does nothing.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "session/engine/status_board.hpp"

namespace kolo::internal::session {

/// What keeps this rank from going on. It becomes a failure if it lasts.
struct Obstacle {
  std::string what;    // that waits: `batch 7 (allreduce "x", 4.0 MB)`
  std::string tensor;  // "": none
  std::chrono::steady_clock::time_point since;
  RankSet awaited{};
  std::string awaits{};  // "to deposit piece 3"
};

/// Of the ranks of a host that meet the same obstacle the lowest that can speaks.
class Watch {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  struct Limits {
    std::chrono::nanoseconds warning{};   // 0: never
    std::chrono::nanoseconds shutdown{};  // 0: never
  };

  Watch(const StatusBoard& board, int rank, const Limits& limits)
      : board_(board), rank_(rank), limits_(limits) {}

  /// To be called ten times a second with all there is. Warns once of each that has lasted, and
  /// again if what is known of it has changed. Returns the stall if one has lasted too long.
  [[nodiscard]] std::optional<Failure> check(const std::vector<Obstacle>& obstacles, TimePoint now);

  /// Whether a rank on the board neither does nor answers anything.
  [[nodiscard]] bool is_silent(int rank, TimePoint now) const;

 private:
  struct Warning {
    std::string text{};
    TimePoint at{};
  };

  [[nodiscard]] std::string describe(const Obstacle& obstacle, TimePoint now, bool times) const;
  [[nodiscard]] bool is_mine_to_report(TimePoint now) const;

  const StatusBoard& board_;
  int rank_;
  Limits limits_;
  std::map<std::string, Warning> warned_{};  // by what waits
};

}  // namespace kolo::internal::session
