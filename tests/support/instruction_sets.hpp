// SPDX-License-Identifier: Apache-2.0
// Helpers for tests of code that is compiled once per instruction set.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>

#include "base/vectors/instruction_set.hpp"

namespace kolo::internal {

/// Calls `test` once with each vector instruction set of this machine, as if there were no better
/// one. If Kolo is not compiled for an instruction set, it uses its scalar code.
template <typename Test>
void for_each_instruction_set(Test test) {
  struct Restore {
    std::int64_t all = supported_targets();
    ~Restore() { chosen_target().update(all); }
  } const restore;
  for (std::int64_t left = restore.all; left != 0; left &= left - 1) {
    const std::int64_t one = left & -left;
    const testing::ScopedTrace trace(__FILE__, __LINE__, hwy::TargetName(one));
    chosen_target().update(one);
    test();
    if (testing::Test::HasFatalFailure()) return;
  }
}

}  // namespace kolo::internal
