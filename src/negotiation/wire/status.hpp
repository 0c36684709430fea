// SPDX-License-Identifier: Apache-2.0
// The status of a rank, as it reports it to the other ranks.
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

/// An operation that its rank has submitted and that has no answer yet.
struct WaitingOperation {
  Key key;
  OperationType type = OperationType::barrier;
  std::chrono::milliseconds waited{};
  friend bool operator==(const WaitingOperation&, const WaitingOperation&) = default;
};

/// Maximum number of operations that a status lists.
inline constexpr std::size_t max_listed = 8;

struct RankStatus {
  int rank = -1;
  std::int64_t process = 0;  // its process number
  ProcessState state = ProcessState::unknown;
  std::chrono::milliseconds heard{};  // since its session last made progress
  std::chrono::milliseconds idle{};   // since it last submitted an operation
  bool submitted = false;             // an operation, since the session began
  bool waits = false;                 // one of its threads waits in Kolo
  bool blocked = false;               // all its threads that ever submitted wait, and nothing moves
  int pending = 0;                    // operations
  std::vector<WaitingOperation> operations{};  // the oldest of them
  std::string batch{};                         // in progress: "batch 7 (allreduce "x", 4 MB)"
  std::string awaits{};                        // what the batch waits for: "to deposit piece 3"
  RankSet awaited{};                           // the ranks that it waits for
  std::optional<Failure> ended{};              // why its session has ended, if it has

  [[nodiscard]] bool lists(const Key& key) const {
    return std::ranges::find(operations, key, &WaitingOperation::key) != operations.end();
  }
  /// True if the rank makes no progress and answers nothing.
  [[nodiscard]] bool silent() const {
    using namespace std::chrono_literals;
    return state == ProcessState::stopped || state == ProcessState::traced ||
           state == ProcessState::ended || heard > 2s;
  }
  friend bool operator==(const RankStatus&, const RankStatus&) = default;
};

}  // namespace kolo::internal::negotiation
