// SPDX-License-Identifier: Apache-2.0
#include "footprint.hpp"

#include <gmock/gmock.h>

#include <stdexcept>
#include <vector>

namespace kolo::internal::soak {
namespace {

using Seconds = std::chrono::duration<double>;
using testing::HasSubstr;

/// `per_second` bytes more resident each second, after a warm-up that takes much more.
Watch::Summary watch(std::int64_t per_second) {
  Watch watch(Seconds(100));
  for (int second = 0; second <= 100; ++second)
    watch.add(Seconds(second),
              {.resident = (second < 10 ? 1000 << 20 : 100 << 20) + second * per_second,
               .descriptors = 10});
  return watch.summary();
}

TEST(Footprint, OfThisProcess) {
  const Footprint before = measure_footprint();
  const std::vector<char> memory(64 << 20, 'x');
  const volatile char* used = memory.data();  // else a compiler may leave the allocation out
  const Footprint after = measure_footprint();
  EXPECT_EQ(used[memory.size() - 1], 'x');
  EXPECT_GT(before.descriptors, 2);
  EXPECT_GE(after.resident - before.resident, 60 << 20);
}

TEST(Footprint, FlatMemoryIsNoGrowth) {
  EXPECT_EQ(find_growth(watch(0)), "");
  EXPECT_EQ(watch(0).first.resident, 1000 << 20);
  EXPECT_EQ(watch(0).most.resident, 100 << 20);
}

TEST(Footprint, GrowthIsNamed) {
  // From the second third on: 61 seconds between the ends of both.
  EXPECT_EQ(find_growth(watch((16 << 20) / 61)), "");
  EXPECT_THAT(find_growth(watch((16 << 20) / 61 + 1)), HasSubstr("resident memory grew by"));
}

TEST(Footprint, TooShortATimeTellsNothing) {
  Watch watch(Seconds(100));
  watch.add(Seconds(5), measure_footprint());
  EXPECT_THROW((void)watch.summary(), std::runtime_error);
  watch.add(Seconds(50), measure_footprint());
  EXPECT_EQ(find_growth(watch.summary()), "");
}

}  // namespace
}  // namespace kolo::internal::soak
