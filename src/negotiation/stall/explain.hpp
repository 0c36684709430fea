// SPDX-License-Identifier: Apache-2.0
// Makes failures whose messages name the tensor, the ranks and the differences.
#pragma once

#include <string>

#include "negotiation/wire/actions.hpp"
#include "negotiation/wire/message.hpp"

namespace kolo::internal::negotiation {

/// "rank 3", "ranks 0-2, 5".
[[nodiscard]] std::string ranks_in_words(const RankSet& ranks);

/// `allreduce "weight"`.
[[nodiscard]] std::string operation_in_words(OperationType type, const Key& key);

/// The differences between the variants of a key; "" if there are none.
[[nodiscard]] std::string differences(const Readiness& conflict);

[[nodiscard]] Failure explain_mismatch(const Readiness& conflict);

/// For one pending operation, `type` under `key`.
[[nodiscard]] Failure explain_departure(const Departure& departure, OperationType type,
                                        const Key& key);

/// For the rank that leaves with the operation pending.
[[nodiscard]] Failure explain_own_departure(const Departure& departure, OperationType type,
                                            const Key& key);

/// For one pending operation of a set in which `stalled` waited too long.
[[nodiscard]] Failure explain_stall(const StallEntry& stalled, OperationType type, const Key& key);

/// The ranks agree, but the operation is undefined without the ranks that have joined.
[[nodiscard]] Failure explain_absence(const Readiness& agreed, const RankSet& absent);

/// For one operation of a process set of `members` that was removed.
[[nodiscard]] Failure explain_removal(OperationType type, const Key& key, const RankSet& members);

}  // namespace kolo::internal::negotiation
