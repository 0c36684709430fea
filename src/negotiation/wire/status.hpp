// What a rank is doing, as others know it.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/activity.hpp"
#include "base/descriptor.hpp"
#include "base/failure.hpp"
#include "base/key.hpp"
#include "base/rank_set.hpp"

namespace kolo::internal::negotiation {

/// An operation that its rank has submitted and that has no answer yet.
struct WaitingOperation {
  Key key;
  OperationType type = OperationType::barrier;
  std::chrono::milliseconds waited{};
  friend bool operator==(const WaitingOperation&, const WaitingOperation&) = default;
};

/// How many operations of a rank are listed.
inline constexpr std::size_t max_listed = 8;

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
  std::vector<WaitingOperation> operations{};  // the oldest of them
  std::string batch{};                         // that is under way: "batch 7 (allreduce "x", 4 MB)"
  std::string awaits{};                        // what the batch waits for: "to deposit piece 3"
  RankSet awaited{};                           // and for whom
  std::optional<Failure> ended{};              // why its session has ended, if it has

  /// It neither does nor answers anything.
  [[nodiscard]] bool silent() const {
    using namespace std::chrono_literals;
    return state == ProcessState::stopped || state == ProcessState::traced ||
           state == ProcessState::ended || heard > 2s;
  }
  friend bool operator==(const RankStatus&, const RankStatus&) = default;
};

}  // namespace kolo::internal::negotiation
