// SPDX-License-Identifier: Apache-2.0
// How fast the ranks of a job step, and where the slowest spends its time.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace kolo::internal {

/// A rank's steps in a recent window of time. A step is the time between two submissions of one
/// name; if some names are used more often or less, the median of all names counts.
struct RankPace {
  int rank = -1;
  std::string host{};
  std::uint64_t steps = 0;               // so far; 0: none is known
  std::chrono::nanoseconds step{};       // the mean time of a step
  std::chrono::nanoseconds computing{};  // the part in which the program did not wait in Kolo
  std::uint64_t bytes_per_second = 0;    // size of tensors in operations
  std::string waits_for{};               // the operation that has waited for long; "": none
  friend bool operator==(const RankPace&, const RankPace&) = default;
};

/// How long programs computed before they submitted an operation, per step. Ranks that are not
/// counted computed for a small part of their step.
struct OperationPace {
  std::string name{};  // "": operations without a name
  std::int64_t set = 0;
  std::chrono::nanoseconds longest{};
  int slowest = -1;                // the rank that took longest
  std::chrono::nanoseconds sum{};  // over the ranks
  friend bool operator==(const OperationPace&, const OperationPace&) = default;
};

/// The paces of the ranks at or below the sender in the tree.
struct PaceReport {
  std::vector<RankPace> ranks{};
  std::vector<OperationPace> operations{};
  friend bool operator==(const PaceReport&, const PaceReport&) = default;
};

/// A rank that makes all others wait in each step.
struct Straggler {
  int rank = -1;
  std::chrono::nanoseconds late{};  // per step, behind the mean of the others
  std::chrono::nanoseconds step{};
  // The operation before which it is late; "": operations without a name; none: no particular one.
  std::optional<std::string> tensor{};
  std::uint64_t since_step = 0;
};

/// All ranks of a job at one time.
struct JobPace {
  std::uint64_t session = 0;
  int size = 1;
  std::vector<RankPace> ranks{};        // ascending; without those that have not reported yet
  std::vector<Straggler> stragglers{};  // at most one
  std::string verdict{};
};

}  // namespace kolo::internal
