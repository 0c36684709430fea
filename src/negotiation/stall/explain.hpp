// SPDX-License-Identifier: Apache-2.0
// Creates failures with messages that name the operation, the ranks and the differences.
#pragma once

#include <string>

#include "negotiation/wire/actions.hpp"
#include "negotiation/wire/message.hpp"

namespace kolo::internal::negotiation {

/// Text such as "rank 3" or "ranks 0-2, 5".
[[nodiscard]] std::string ranks_in_words(const RankSet& ranks);

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

}  // namespace kolo::internal::negotiation
