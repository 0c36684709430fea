// SPDX-License-Identifier: Apache-2.0
// Helpers for tests of code that is compiled once per instruction set.
#pragma once

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <cstdint>

namespace kolo::internal {

/// Calls `test` once with each vector instruction set of this machine, as if there were no better
/// one. If Kolo is not compiled for an instruction set, it uses its scalar code.
template <typename Test>
void for_each_instruction_set(Test test) {
  struct Restore {
    ~Restore() { hwy::GetChosenTarget().DeInit(); }
  } const restore;
  const std::int64_t all = hwy::SupportedTargets();
  for (std::int64_t left = all; left != 0; left &= left - 1) {
    const std::int64_t one = left & -left;
    const testing::ScopedTrace trace(__FILE__, __LINE__, hwy::TargetName(one));
    hwy::GetChosenTarget().Update(one);
    test();
    if (testing::Test::HasFatalFailure()) return;
  }
}

}  // namespace kolo::internal
