#include "backend/hierarchical/ways.hpp"

#include <gmock/gmock.h>

#include <vector>

namespace kolo::backend::hierarchical {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr std::int64_t small_elements = 1000;
constexpr std::int64_t middle_elements = 16'000;
constexpr std::int64_t large_elements = 200'000;

TEST(Ways, TwoHostsHaveNoChoice) {
  EXPECT_THAT(Ways::tried(2), IsEmpty());
  EXPECT_EQ(Ways().choose(2, large_elements, DType::f32), Way::whole);
  EXPECT_EQ(Ways().choose(2, large_elements, DType::f16), Way::direct);
}

TEST(Ways, WithoutATrialShortOnesAreSentWhole) {
  EXPECT_EQ(Ways().choose(3, small_elements, DType::f32), Way::whole);
  EXPECT_EQ(Ways().choose(8, small_elements, DType::f32), Way::whole);
  EXPECT_EQ(Ways().choose(9, small_elements, DType::f32), Way::direct);
  EXPECT_EQ(Ways().choose(3, middle_elements, DType::f32), Way::direct);
  EXPECT_EQ(Ways().choose(3, large_elements, DType::f32), Way::direct);
}

TEST(Ways, HalfTypesCountAsWhatTheyAreCombinedIn) {
  // 16 KiB of f32.
  EXPECT_EQ(Ways().choose(3, 4096, DType::f16), Way::whole);
  EXPECT_EQ(Ways().choose(3, 4097, DType::f16), Way::direct);
}

TEST(Ways, TheQuickestOfEachSizeIsChosen) {
  ASSERT_THAT(Ways::tried(4), ElementsAre(Way::whole, Way::direct, Way::ring, Way::doubling));
  const std::vector<std::vector<double>> seconds{{4, 3, 2, 1}, {4, 1, 2, 3}, {4, 2, 1, 3}};
  const Ways ways(4, seconds);
  EXPECT_EQ(ways.choose(4, small_elements, DType::f32), Way::doubling);
  EXPECT_EQ(ways.choose(4, middle_elements, DType::f32), Way::direct);
  EXPECT_EQ(ways.choose(4, large_elements, DType::f32), Way::ring);
}

TEST(Ways, AmongManyHostsNothingIsSentWhole) {
  ASSERT_THAT(Ways::tried(9), ElementsAre(Way::direct, Way::ring, Way::doubling));
  const std::vector<std::vector<double>> seconds(3, {3.0, 2.0, 1.0});
  EXPECT_EQ(Ways(9, seconds).choose(9, small_elements, DType::f32), Way::doubling);
}

TEST(Ways, ALittleFasterIsNotFasterEnough) {
  const std::vector<std::vector<double>> seconds(3, {1.0, 1.0, 0.9, 0.95});
  const Ways ways(4, seconds);
  EXPECT_EQ(ways.choose(4, small_elements, DType::f32), Way::whole);
  EXPECT_EQ(ways.choose(4, large_elements, DType::f32), Way::direct);
}

TEST(Ways, OneForAll) {
  for (const int owners : {2, 3, 20})
    EXPECT_EQ(Ways(Way::ring).choose(owners, small_elements, DType::bf16), Way::ring);
}

}  // namespace
}  // namespace kolo::backend::hierarchical
