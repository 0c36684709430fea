// For tests of code that has a version for each of the machine's instruction sets.
#pragma once

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <cstdint>

namespace kolo {

/// Calls `test` once with each set of vector instructions that this machine has, as if it had no
/// better one. For those that Kolo is not compiled for, it takes its scalar code.
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

}  // namespace kolo
