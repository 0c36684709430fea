// SPDX-License-Identifier: Apache-2.0
#include "base/format.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace kolo::internal {
namespace {

TEST(NearestName, IsOneWithFewDifferences) {
  const std::vector<std::string> names{"conv1.bias", "conv2.weight", "fc"};
  EXPECT_EQ(nearest_name("conv1.weight", names), "conv2.weight");
  EXPECT_EQ(nearest_name("conv1.bais", names), "conv1.bias");
  EXPECT_EQ(nearest_name("embedding", names), "");
  EXPECT_EQ(nearest_name("a", std::vector<std::string>{"b"}), "");
}

}  // namespace
}  // namespace kolo::internal
