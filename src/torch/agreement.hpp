// Checks that all ranks train the same thing.
#pragma once

#include <string>
#include <vector>

namespace kolo::detail {

/// One thing that must be alike on all ranks, e.g. {"0.weight", "f32 [64, 3]"}.
struct Item {
  std::string name;
  std::string description;
};

/// Collective. Throws Mismatch on every rank unless all have the same list; it says which is the
/// first item to differ, how, and which ranks differ from rank 0. `operation` names the collectives
/// used; `subject` begins the message ("the optimizer's parameters").
void require_agreement(const std::string& operation, const std::string& subject,
                       const std::vector<Item>& items);

/// Collective: the ranks that gave true, ascending.
[[nodiscard]] std::vector<int> ranks_that(bool said_so, const std::string& operation);

}  // namespace kolo::detail
