// SPDX-License-Identifier: Apache-2.0
#include "base/enumerators.hpp"

#include <cstdint>

#include <gtest/gtest.h>

namespace kolo::internal {
namespace {

enum class Small : std::uint8_t { first, second, third, last = third };
enum class Signed : int { only, last = only };

static_assert(enumerator_count<Small> == 3);
static_assert(enumerator_count<Signed> == 1);

TEST(Enumerators, AreToldFromOtherValues) {
  EXPECT_TRUE(is_enumerator<Small>(0));
  EXPECT_TRUE(is_enumerator<Small>(2));
  EXPECT_FALSE(is_enumerator<Small>(3));
  EXPECT_FALSE(is_enumerator<Small>(255));
  EXPECT_TRUE(is_enumerator<Signed>(0));
  EXPECT_FALSE(is_enumerator<Signed>(-1));
  EXPECT_FALSE(is_enumerator<Signed>(1));
}

}  // namespace
}  // namespace kolo::internal
