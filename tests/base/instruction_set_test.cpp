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
  const ChosenTarget expected(supported_targets());
  constexpr std::int64_t all = HWY_CHOSEN_TARGET_MASK_TARGETS;
  EXPECT_EQ(chosen_target().index(all), expected.index(all));
}

// The table of a file has no function for a set for which the file is not compiled.
TEST(InstructionSet, IsOneForWhichTheFileIsCompiled) {
  const std::int64_t best = HWY_TARGETS & -HWY_TARGETS;
  const ChosenTarget chosen(best);
  const std::int64_t all = HWY_CHOSEN_TARGET_MASK_TARGETS;
  const std::int64_t others = all & ~HWY_CHOSEN_TARGET_SHIFT(best);
  EXPECT_LT(chosen.index(all), chosen.index(others));
  EXPECT_EQ(chosen.index(others), HWY_MAX_DYNAMIC_TARGETS + 1) << "the scalar code";
}

}  // namespace
}  // namespace kolo::internal
