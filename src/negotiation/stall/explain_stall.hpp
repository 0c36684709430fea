// SPDX-License-Identifier: Apache-2.0
// Finds ranks that wait for each other, and writes the reports about ranks that others wait for.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "negotiation/wire/message.hpp"
#include "negotiation/wire/status.hpp"

namespace kolo::internal::negotiation {

/// The last status of each rank that was received.
using Statuses = std::map<int, RankStatus>;

/// Operations of one process set that wait for the same ranks.
struct StalledGroup {
  std::vector<Lag> lags;  // the first is the one that has waited longest
  RankSet missing;
  std::string conflict{};  // differences between submissions of the first
};

/// Describes what each of `ranks`, and each rank that they wait for in turn, is doing. Ranks that
/// do the same share a line. With `wanted`, similar names of other operations are pointed out.
/// Without `times`, the text changes only when the situation does.
[[nodiscard]] std::string describe(const RankSet& ranks, const Statuses& statuses,
                                   const std::optional<Key>& wanted, bool times = true);

/// The warning about operations that are late.
[[nodiscard]] std::string report_late(const StalledGroup& late, const Statuses& statuses,
                                      bool times = true);

/// Ranks that wait for each other. `missing` are, for each operation that one of them waits for,
/// the ranks that have not submitted it.
struct Blockade {
  RankSet ranks;
  std::vector<StalledGroup> operations;
};

/// The members of a process set; none if there is no such set.
using MembersOf = std::function<RankSet(SetId)>;

/// The ranks all of whose threads wait for operations that cannot complete unless another of these
/// ranks continues. Ranks with too little information are assumed to continue, unless all ranks of
/// the world wait.
[[nodiscard]] std::optional<Blockade> find_deadlock(const Statuses& statuses,
                                                    const MembersOf& members_of);

/// The warning about a deadlock.
[[nodiscard]] std::string report_deadlock(const Blockade& blockade, const Statuses& statuses);

/// "60.1 s".
[[nodiscard]] std::string in_seconds(std::chrono::milliseconds time);

}  // namespace kolo::internal::negotiation
