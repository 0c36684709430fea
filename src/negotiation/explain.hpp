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

/// For one pending operation, after `stalled` waited too long. `ranks`: how many there are.
[[nodiscard]] Failure explain_stall(const Lag& stalled, int ranks, OperationType type,
                                    const Key& key);

/// The warning about an operation that is late.
[[nodiscard]] std::string report_lag(const Lag& lag, int ranks);

}  // namespace kolo::negotiation
