// Turns what is known of ranks that are waited for into words.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "negotiation/message.hpp"
#include "negotiation/status.hpp"

namespace kolo::negotiation {

/// Of ranks, the last that was heard.
using Statuses = std::map<int, RankStatus>;

/// Operations of one process set that wait for the same ranks.
struct LateOnes {
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
[[nodiscard]] std::string report_late(const LateOnes& late, const Statuses& statuses,
                                      bool times = true);

/// The warning about ranks that wait for each other. `missing` are, for each operation that one of
/// them waits for, the ranks that have not submitted it.
struct Blockade {
  RankSet ranks;
  std::vector<LateOnes> operations;
};
[[nodiscard]] std::string report_deadlock(const Blockade& blockade, const Statuses& statuses);

/// The name among `names` that `wanted` may have been meant to be, or "".
[[nodiscard]] std::string nearest_name(const std::string& wanted,
                                       std::span<const std::string> names);

/// "60.1 s".
[[nodiscard]] std::string in_seconds(std::chrono::milliseconds time);

}  // namespace kolo::negotiation
