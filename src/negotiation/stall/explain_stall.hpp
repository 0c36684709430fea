// Finds ranks that wait for each other, and says in words what is known of ranks that are waited
// for.
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

/// Of ranks, the last that was heard.
using Statuses = std::map<int, RankStatus>;

/// Operations of one process set that wait for the same ranks.
struct StalledGroup {
  std::vector<Lag> lags;  // the first is the one that has waited longest
  RankSet missing;
  std::string conflict{};  // what those that have submitted the first disagree about
};

/// What each of `ranks` does, and whoever they wait for in turn, a line for those that do the same.
/// With `wanted`, a name that is like it is pointed out. Without `times` two texts are equal if
/// nothing has changed but the time.
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

/// Ranks all of whose threads wait, each for operations that cannot complete unless another of
/// these ranks goes on. Ranks of which too little is known are taken to go on; but if all ranks of
/// the world wait, nothing can.
[[nodiscard]] std::optional<Blockade> find_deadlock(const Statuses& statuses,
                                                    const MembersOf& members_of);

/// The warning about them.
[[nodiscard]] std::string report_deadlock(const Blockade& blockade, const Statuses& statuses);

/// The name among `names` that `wanted` may have been meant to be, or "".
[[nodiscard]] std::string nearest_name(const std::string& wanted,
                                       std::span<const std::string> names);

/// "60.1 s".
[[nodiscard]] std::string in_seconds(std::chrono::milliseconds time);

}  // namespace kolo::internal::negotiation
