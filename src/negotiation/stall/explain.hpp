// SPDX-License-Identifier: Apache-2.0
// Creates failures with messages that name the operation, the ranks and the differences. Finds
// ranks that wait for each other, and writes reports about late operations and deadlocks.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "negotiation/wire/actions.hpp"
#include "negotiation/wire/message.hpp"

namespace kolo::internal::negotiation {

/// Text such as `allreduce "weight"`.
[[nodiscard]] std::string operation_in_words(OperationType type, const Key& key);

/// The differences between the variants of a key; "" if there are none.
[[nodiscard]] std::string differences(const Readiness& conflict);

[[nodiscard]] Failure explain_mismatch(const Readiness& conflict);

/// The failure of a pending operation, of `type` under `key`, because of a departure.
[[nodiscard]] Failure explain_departure(const Departure& departure, OperationType type,
                                        const Key& key);

/// The failure of a pending operation on the rank that leaves.
[[nodiscard]] Failure explain_own_departure(const Departure& departure, OperationType type,
                                            const Key& key);

/// The failure of a pending operation because of a stall in its process set.
[[nodiscard]] Failure explain_stall(const StallEntry& stalled, OperationType type, const Key& key);

/// The failure of an operation on which the ranks agree, but that is undefined without the ranks
/// that have joined.
[[nodiscard]] Failure explain_absence(const Readiness& agreed, const RankSet& absent);

/// The failure of an operation because its process set, which had these members, was removed.
[[nodiscard]] Failure explain_removal(OperationType type, const Key& key, const RankSet& members);

// ---- reports ----

/// The last status received from each rank.
using Statuses = std::map<int, RankStatus>;

/// Operations of one process set that wait for the same ranks.
struct StalledGroup {
  std::vector<Lag> lags;  // the operation that has waited longest is first
  RankSet missing;
  std::string conflict{};  // differences between the submissions of the first operation
};

/// Describes the activity of each of `ranks`, and of each rank that they wait for in turn. Ranks
/// with the same activity share a line. With `wanted`, the text points out pending operations with
/// a similar name, since one of the names may be misspelled. Without `times`, equal situations give
/// equal texts. `all_asked`: a rank without a status was asked for it and has not answered;
/// otherwise the text leaves it out.
[[nodiscard]] std::string describe(const RankSet& ranks, const Statuses& statuses,
                                   const std::optional<Key>& wanted, bool times = true,
                                   bool all_asked = true);

/// The ends of the waits that begin at some ranks: a rank whose batch waits for others leads to
/// these.
struct WaitEnds {
  RankSet silent{};   // ranks that make no progress
  RankSet unknown{};  // ranks without a status
  RankSet late{};     // ranks that work and wait for nobody in Kolo
};
[[nodiscard]] WaitEnds find_wait_ends(const RankSet& awaited, const Statuses& statuses);

/// The ranks to blame for a wait for `awaited`. If `find_wait_ends` finds silent or unknown ranks,
/// those and the late ranks that it finds. Otherwise `awaited`.
[[nodiscard]] RankSet culprits(const RankSet& awaited, const Statuses& statuses);

/// The warning about late operations.
[[nodiscard]] std::string report_late(const StalledGroup& late, const Statuses& statuses,
                                      bool times = true);

/// Ranks that wait for each other, and the operations that they wait for. `missing` of an operation
/// lists the ranks that have not submitted it.
struct Blockade {
  RankSet ranks;
  std::vector<StalledGroup> operations;
};

/// The members of a process set; none if there is no such set.
using MembersOf = std::function<RankSet(SetId)>;

/// Finds a deadlock: ranks that wait for each other. None of their pending operations can complete
/// unless another of these ranks continues. Ranks without a complete list of operations are assumed
/// to continue, unless all ranks of the world wait.
[[nodiscard]] std::optional<Blockade> find_deadlock(const Statuses& statuses,
                                                    const MembersOf& members_of);

/// The warning about a deadlock.
[[nodiscard]] std::string report_deadlock(const Blockade& blockade, const Statuses& statuses);

/// Text such as "60.1 s".
[[nodiscard]] std::string in_seconds(std::chrono::milliseconds time);

}  // namespace kolo::internal::negotiation
