// Turns what went wrong into words that name the tensor, the ranks and what differed.
#pragma once

#include <string>

#include "negotiation/actions.hpp"
#include "negotiation/message.hpp"

namespace kolo::negotiation {

[[nodiscard]] Failure explain_mismatch(const Readiness& conflict);

/// For one pending operation, `type` under `key`.
[[nodiscard]] Failure explain_departure(const Departure& departure, OperationType type,
                                        const Key& key);

/// For the rank that leaves with the operation pending.
[[nodiscard]] Failure explain_own_departure(const Departure& departure, OperationType type,
                                            const Key& key);

/// For one pending operation of a set in which `stalled` waited too long.
[[nodiscard]] Failure explain_stall(const StallEntry& stalled, OperationType type, const Key& key);

/// The ranks agree, but on what has no meaning without those that have joined.
[[nodiscard]] Failure explain_absence(const Readiness& agreed, const RankSet& absent);

/// For one operation of a process set that was removed.
[[nodiscard]] Failure explain_removal(OperationType type, const Key& key);

/// The warning about an operation that is late.
[[nodiscard]] std::string report_lag(const Lag& lag, const RankSet& missing);

}  // namespace kolo::negotiation
