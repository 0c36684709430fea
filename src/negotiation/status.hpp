// What a rank is doing, as others know it.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "base/descriptor.hpp"
#include "base/rank_set.hpp"
#include "negotiation/actions.hpp"
#include "negotiation/key.hpp"

namespace kolo::negotiation {

enum class ProcessState : std::uint8_t { unknown, alive, stopped, traced, uninterruptible, ended };

/// An operation that its rank has submitted, and that has no answer yet.
struct PendingOperation {
  Key key;
  OperationType type = OperationType::barrier;
  std::chrono::milliseconds waited{};
  friend bool operator==(const PendingOperation&, const PendingOperation&) = default;
};

/// Why a rank's session has ended, or cannot go on.
struct Ending {
  FailureKind kind = FailureKind::peer_left;
  std::string reason{};
  RankSet culprits{};
  friend bool operator==(const Ending&, const Ending&) = default;
};

/// How many operations of a rank are listed.
inline constexpr std::size_t most_listed = 8;

struct RankStatus {
  int rank = -1;
  std::int64_t process = 0;  // its number
  ProcessState state = ProcessState::unknown;
  std::chrono::milliseconds heard{};  // since its session last moved
  std::chrono::milliseconds idle{};   // since it last submitted something
  bool submitted = false;             // anything so far
  bool waits = false;                 // a thread of it waits in Kolo
  bool blocked = false;  // all its threads that ever submitted something do, and nothing moves
  int pending = 0;       // operations
  std::vector<PendingOperation> operations{};  // the oldest of them
  std::string batch{};                         // that is under way: "batch 7 (allreduce "x", 4 MB)"
  std::string awaits{};                        // what the batch waits for: "to deposit piece 3"
  RankSet awaited{};                           // and whom
  bool ended = false;
  Ending ending{};  // if it has

  /// It neither does nor answers anything.
  [[nodiscard]] bool silent() const {
    using namespace std::chrono_literals;
    return state == ProcessState::stopped || state == ProcessState::traced ||
           state == ProcessState::ended || heard > 2s;
  }
  friend bool operator==(const RankStatus&, const RankStatus&) = default;
};

}  // namespace kolo::negotiation
