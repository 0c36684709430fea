// SPDX-License-Identifier: Apache-2.0
// The setup of every DistributedOptimizer: its number, its options, and its gradient groups.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/overlap.hpp"
#include "kolo/optimizer.hpp"
#include "training/agreement.hpp"

namespace kolo::internal {

/// Collective, unless agreements are deferred (`detail::agreements_are_deferred`). Returns a number
/// that no earlier optimizer has on any rank of the set. The names of operations carry the number,
/// because two optimizers may have parameters of the same name.
[[nodiscard]] KOLO_EXPORT std::int64_t agree_on_optimizer_number(const ProcessSet& set);

/// Throws InvalidArgument for a set other than the world, since such a set ends with its session.
KOLO_EXPORT void require_world_to_rejoin(const ProcessSet& set, const char* subject);

/// The names of classes with which messages begin.
constexpr const char* distributed_subject = "DistributedOptimizer";
constexpr const char* sharded_subject = "ShardedOptimizer";

/// Throws InvalidArgument, printing the value, for an option that cannot be used. Does not check
/// parameter names.
KOLO_EXPORT void require_valid(const DistributedOptimizerOptions& options, const char* subject);

/// Throws InvalidArgument for a parameter's name that is too long: the name of its operation is
/// longer still. Checked at construction, because other ranks might wait if a step threw.
KOLO_EXPORT void require_short(const std::string& name, const char* subject);

/// Throws InvalidArgument, naming two gradients, if they share memory: operations that are pending
/// together must not write to the same memory. `use_of(i)`, for `i` below `uses`, returns a range
/// of memory, with the slot of its gradient as the position.
KOLO_EXPORT void require_disjoint(const char* subject, std::size_t uses,
                                  const std::function<MemoryUse(std::size_t)>& use_of,
                                  const std::function<std::string(std::size_t)>& name_of_slot);

/// The options that must be equal on all ranks, except the groups.
[[nodiscard]] KOLO_EXPORT Item describe(const DistributedOptimizerOptions& options);

/// The factors applied to gradients before and after the sum over ranks. With Accumulation::mean,
/// the prescale also divides by the backward passes of a complete step.
[[nodiscard]] KOLO_EXPORT double prescale(const DistributedOptimizerOptions& options);
[[nodiscard]] KOLO_EXPORT double postscale(const DistributedOptimizerOptions& options);

/// Maps a parameter's name to the number of its group. Parameters without a group are absent.
using GroupNumbers = std::unordered_map<std::string, std::size_t>;

/// The groups that the user listed. A parameter may have several names: `resolve` returns its
/// canonical name, or nothing for an unknown name. Throws InvalidArgument for an unknown name, a
/// repeated name, and an empty group.
[[nodiscard]] KOLO_EXPORT GroupNumbers
listed_groups(const std::vector<std::vector<std::string>>& groups,
              const std::function<std::optional<std::string>(const std::string&)>& resolve,
              const char* subject);

/// Splits the names into `count` consecutive groups whose sizes differ by at most one. With fewer
/// names than `count`, each name is a group.
[[nodiscard]] KOLO_EXPORT GroupNumbers consecutive_groups(const std::vector<std::string>& names,
                                                          std::size_t count);

}  // namespace kolo::internal
