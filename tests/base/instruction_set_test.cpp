// SPDX-License-Identifier: Apache-2.0
#include "base/vectors/instruction_set.hpp"

#include <gtest/gtest.h>
#include <link.h>

#include <string_view>

namespace kolo::internal {
namespace {

bool is_highway_loaded() {
  bool found = false;
  ::dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* result) {
        if (std::string_view(info->dlpi_name).find("libhwy.so") != std::string_view::npos)
          *static_cast<bool*>(result) = true;
        return 0;
      },
      &found);
  return found;
}

const bool is_loaded_with_the_program = is_highway_loaded();

TEST(InstructionSet, HighwaysLibraryIsNotLoadedWithTheProgram) {
  EXPECT_FALSE(is_loaded_with_the_program);
}

// The machine has more than every machine of its architecture has, and Kolo uses it.
TEST(InstructionSet, TheBestIsChosen) {
  const std::int64_t best = supported_targets() & -supported_targets();
#if HWY_ARCH_X86
  if (__builtin_cpu_supports("avx2") == 0) GTEST_SKIP() << "this machine has no AVX2";
  EXPECT_LE(best, HWY_AVX2) << hwy::TargetName(best);
#endif
  EXPECT_TRUE(chosen_target().IsInitialized());
  hwy::ChosenTarget expected;
  expected.Update(supported_targets());
  EXPECT_EQ(chosen_target().GetIndex(), expected.GetIndex());
}

}  // namespace
}  // namespace kolo::internal
