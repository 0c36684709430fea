// SPDX-License-Identifier: Apache-2.0
// The status that a rank reports to other ranks.
#pragma once

#include <algorithm>
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

/// An operation that the rank has submitted and that is not answered yet.
struct WaitingOperation {
  Key key;
  OperationType type = OperationType::barrier;
  std::chrono::milliseconds waited{};
  friend bool operator==(const WaitingOperation&, const WaitingOperation&) = default;
};

/// The maximum number of operations that a status lists.
inline constexpr std::size_t max_listed = 8;

struct RankStatus {
  int rank = -1;
  std::int64_t process = 0;  // the process ID
  ProcessState state = ProcessState::unknown;
  std::chrono::milliseconds heard{};  // time since its session last made progress
  std::chrono::milliseconds idle{};   // time since it last submitted an operation
  bool submitted = false;             // it has submitted an operation since the session began
  bool waits = false;                 // one of its threads waits in Kolo
  bool blocked = false;               // all threads that ever submitted wait, and nothing moves
  int pending = 0;                    // number of pending operations
  std::vector<WaitingOperation> operations{};  // the oldest pending operations
  std::string batch{};   // the batch in progress, such as "batch 7 (allreduce "x", 4 MB)"
  std::string awaits{};  // the step that the batch waits for, such as "to deposit piece 3"
  RankSet awaited{};     // the ranks that the batch waits for
  std::optional<Failure> ended{};  // the reason why its session has ended; none if it has not

  [[nodiscard]] bool lists(const Key& key) const {
    return std::ranges::find(operations, key, &WaitingOperation::key) != operations.end();
  }
  /// True if the rank makes no progress and cannot answer.
  [[nodiscard]] bool silent() const {
    using namespace std::chrono_literals;
    return state == ProcessState::stopped || state == ProcessState::traced ||
           state == ProcessState::ended || heard > 2s;
  }
  friend bool operator==(const RankStatus&, const RankStatus&) = default;
};

}  // namespace kolo::internal::negotiation
