// SPDX-License-Identifier: Apache-2.0
#include "session/engine/launched_batches.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace kolo::internal::session {
namespace {

/// A program that gives each warm-up other names must not need ever more memory.
TEST(LaunchedBatches, KeepTheNamesThatWereLastPreparedForGraphs) {
  LaunchedBatches batches;
  constexpr int kept = 10'000;
  const auto tensors = [](int elements) {
    return std::vector<TensorSpec>{{DType::f32, Shape{elements}}};
  };
  const auto is_prepared = [&](int number, int elements) {
    return batches.is_prepared_for_graphs(0, std::to_string(number), tensors(elements));
  };
  for (int number = 0; number < kept; ++number)
    batches.note_prepared_for_graphs(0, std::to_string(number), tensors(3));
  batches.note_prepared_for_graphs(0, "5", tensors(4));  // known, so it drops no other
  EXPECT_TRUE(is_prepared(0, 3));
  EXPECT_TRUE(is_prepared(5, 4));
  EXPECT_FALSE(is_prepared(5, 3));
  batches.note_prepared_for_graphs(0, std::to_string(kept), tensors(3));
  EXPECT_FALSE(is_prepared(0, 3));
  EXPECT_TRUE(is_prepared(1, 3));
  EXPECT_TRUE(is_prepared(kept, 3));
}

}  // namespace
}  // namespace kolo::internal::session
