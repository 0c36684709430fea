// SPDX-License-Identifier: Apache-2.0
// Agreement of the ranks of a set: lists that must be equal on all ranks, and failures that all
// ranks share.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "kolo/export.hpp"  // kolo::torch, another library, uses the marked functions
#include "kolo/process_set.hpp"
#include "kolo/tensor.hpp"

namespace kolo::internal {

/// An entry of a list that must be equal on all ranks, for example {"0.weight", "f32 [64, 3]"}.
struct Item {
  std::string name;
  std::string description;
};

/// Describes each tensor by its name, dtype and shape. Throws InvalidArgument for an empty or
/// repeated name; `subject` begins the message.
[[nodiscard]] std::vector<Item> items_of(const std::vector<NamedTensor>& tensors,
                                         const std::string& subject);

/// Collective. Throws Mismatch on every rank unless all ranks have the same list. The message names
/// the first item that differs, its two descriptions, and the ranks that differ from the set's
/// first rank. `operation` names the collectives used; `subject` begins the message ("the
/// optimizer's parameters").
KOLO_EXPORT void require_agreement(const std::string& operation, const std::string& subject,
                                   const std::vector<Item>& items, const ProcessSet& set = {});

/// Collective. Returns the world ranks that passed true, in ascending order.
[[nodiscard]] std::vector<int> ranks_that(bool said_so, const std::string& operation,
                                          const ProcessSet& set = {});

/// Throws InvalidArgument, naming `function`, unless `root` is a member.
KOLO_EXPORT void require_root(const std::string& function, int root, const ProcessSet& set);

/// Runs `work`. Returns the message of its exception, or "" if it succeeds. Errors after which the
/// collectives of a set fail (PeerLeft, Stalled, ShutDown, BackendError, NotInitialized) are thrown
/// again: this rank cannot share them, and the other ranks get errors of their own.
[[nodiscard]] KOLO_EXPORT std::string failure_of(const std::function<void()>& work);

/// The ranks on which some work has thrown, in ascending order, and the message of the lowest of
/// them, followed by all of them: "no such file (on ranks 1, 3)". Both are empty if it succeeded.
struct FailedRanks {
  std::vector<int> ranks{};
  std::string message{};
};

/// Collective. Runs `work` on every rank, and returns the same result on every rank. `operation`
/// names the collectives. Throws what `failure_of` throws.
[[nodiscard]] FailedRanks failed_ranks(const std::string& operation,
                                       const std::function<void()>& work,
                                       const ProcessSet& set = {});

/// As `failed_ranks`, but throws Error with these ranks on every rank if `work` throws on some.
/// `context` begins the message, unless the exception's message begins with it.
KOLO_EXPORT void share_failure(const std::string& operation, const std::string& context,
                               const std::function<void()>& work, const ProcessSet& set);

}  // namespace kolo::internal
