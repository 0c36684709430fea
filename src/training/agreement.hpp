// Checks that all ranks of a set train the same thing.
#pragma once

#include <exception>
#include <string>
#include <vector>

#include "kolo/export.hpp"  // kolo::torch, another library, uses what is marked
#include "kolo/process_set.hpp"

namespace kolo::detail {

/// One thing that must be alike on all ranks, e.g. {"0.weight", "f32 [64, 3]"}.
struct Item {
  std::string name;
  std::string description;
};

/// Collective. Throws Mismatch on every rank unless all have the same list; it says which is the
/// first item to differ, how, and which ranks differ from the set's first. `operation` names the
/// collectives used; `subject` begins the message ("the optimizer's parameters").
KOLO_EXPORT void require_agreement(const std::string& operation, const std::string& subject,
                                   const std::vector<Item>& items, const ProcessSet& set = {});

/// Collective: the ranks of the world that gave true, ascending.
[[nodiscard]] std::vector<int> ranks_that(bool said_so, const std::string& operation,
                                          const ProcessSet& set = {});

/// Throws InvalidArgument, which names `function`, unless `root` is a member.
KOLO_EXPORT void require_root(const std::string& function, int root, const ProcessSet& set);

/// Collective: if `error` is not empty on some rank, every rank throws an Error that names those.
/// `what` is what they failed to do.
KOLO_EXPORT void require_success(const std::string& function, const std::string& what,
                                 const std::string& error, const ProcessSet& set);

/// What `action` throws, as text; "" if it does not.
template <typename Action>
[[nodiscard]] std::string failure_of(const Action& action) {
  try {
    action();
  } catch (const std::exception& exception) {
    const std::string text = exception.what();
    return text.empty() ? "unknown" : text;
  }
  return {};
}

}  // namespace kolo::detail
