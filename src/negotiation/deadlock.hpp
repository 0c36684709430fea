// Finds ranks that wait for each other.
#pragma once

#include <functional>
#include <optional>

#include "negotiation/explain_stall.hpp"

namespace kolo::negotiation {

/// The members of a process set; none if there is no such set.
using MembersOf = std::function<RankSet(SetId)>;

/// Ranks all of whose threads wait, each for operations that cannot complete unless another of
/// these ranks goes on. Ranks of which too little is known are taken to go on; but if all ranks of
/// the world wait, nothing can.
[[nodiscard]] std::optional<Blockade> find_deadlock(const Statuses& statuses,
                                                    const MembersOf& members_of);

}  // namespace kolo::negotiation
