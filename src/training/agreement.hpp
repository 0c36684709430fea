// SPDX-License-Identifier: Apache-2.0
// Checks that all ranks of a set train the same thing.
#pragma once

#include <exception>
#include <string>
#include <vector>

#include "base/failure.hpp"
#include "kolo/export.hpp"  // kolo::torch, another library, uses what is marked
#include "kolo/process_set.hpp"
#include "kolo/tensor.hpp"

namespace kolo::internal {

/// One thing that must be equal on all ranks, e.g. {"0.weight", "f32 [64, 3]"}.
struct Item {
  std::string name;
  std::string description;
};

/// Names with dtypes and shapes. Throws InvalidArgument for an empty or repeated name; `subject`
/// begins the message.
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

/// Collective. If `error` is not empty on some rank, every rank throws an Error that names the
/// failed ranks. `action` is the verb for the message, such as "save".
KOLO_EXPORT void require_success(const std::string& function, const std::string& action,
                                 const std::string& error, const ProcessSet& set);

/// The message of the exception that `action` throws; "" if it succeeds.
template <typename Action>
[[nodiscard]] std::string failure_of(const Action& action) {
  try {
    action();
    return {};
  } catch (const std::exception&) {
    return message_of_current_exception();
  }
}

}  // namespace kolo::internal
