// SPDX-License-Identifier: Apache-2.0
#include "backend/internode/algorithms.hpp"

#include <gmock/gmock.h>

#include <vector>

namespace kolo::internal::backend::internode {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr std::int64_t small_elements = 1000;
constexpr std::int64_t middle_elements = 16'000;
constexpr std::int64_t large_elements = 200'000;

TEST(InterNodeAlgorithms, TwoHostsHaveNoChoice) {
  EXPECT_THAT(AlgorithmTable::candidates(2), IsEmpty());
  EXPECT_EQ(AlgorithmTable().select(2, large_elements, DType::f32), InterNodeAlgorithm::whole);
  EXPECT_EQ(AlgorithmTable().select(2, large_elements, DType::f16), InterNodeAlgorithm::direct);
}

TEST(InterNodeAlgorithms, WithoutATrialShortOnesAreSentWhole) {
  EXPECT_EQ(AlgorithmTable().select(3, small_elements, DType::f32), InterNodeAlgorithm::whole);
  EXPECT_EQ(AlgorithmTable().select(8, small_elements, DType::f32), InterNodeAlgorithm::whole);
  EXPECT_EQ(AlgorithmTable().select(9, small_elements, DType::f32), InterNodeAlgorithm::direct);
  EXPECT_EQ(AlgorithmTable().select(3, middle_elements, DType::f32), InterNodeAlgorithm::direct);
  EXPECT_EQ(AlgorithmTable().select(3, large_elements, DType::f32), InterNodeAlgorithm::direct);
}

TEST(InterNodeAlgorithms, HalfTypesCountAsWhatTheyAreCombinedIn) {
  // 16 KiB of f32.
  EXPECT_EQ(AlgorithmTable().select(3, 4096, DType::f16), InterNodeAlgorithm::whole);
  EXPECT_EQ(AlgorithmTable().select(3, 4097, DType::f16), InterNodeAlgorithm::direct);
}

TEST(InterNodeAlgorithms, TheQuickestOfEachSizeIsChosen) {
  ASSERT_THAT(AlgorithmTable::candidates(4),
              ElementsAre(InterNodeAlgorithm::whole, InterNodeAlgorithm::direct,
                          InterNodeAlgorithm::ring, InterNodeAlgorithm::doubling));
  const std::vector<std::vector<double>> seconds{{4, 3, 2, 1}, {4, 1, 2, 3}, {4, 2, 1, 3}};
  const AlgorithmTable algorithms(4, seconds);
  EXPECT_EQ(algorithms.select(4, small_elements, DType::f32), InterNodeAlgorithm::doubling);
  EXPECT_EQ(algorithms.select(4, middle_elements, DType::f32), InterNodeAlgorithm::direct);
  EXPECT_EQ(algorithms.select(4, large_elements, DType::f32), InterNodeAlgorithm::ring);
}

TEST(InterNodeAlgorithms, AmongManyHostsNothingIsSentWhole) {
  ASSERT_THAT(AlgorithmTable::candidates(9),
              ElementsAre(InterNodeAlgorithm::direct, InterNodeAlgorithm::ring,
                          InterNodeAlgorithm::doubling));
  const std::vector<std::vector<double>> seconds(3, {3.0, 2.0, 1.0});
  EXPECT_EQ(AlgorithmTable(9, seconds).select(9, small_elements, DType::f32),
            InterNodeAlgorithm::doubling);
}

TEST(InterNodeAlgorithms, ALittleFasterIsNotFasterEnough) {
  const std::vector<std::vector<double>> seconds(3, {1.0, 1.0, 0.9, 0.95});
  const AlgorithmTable algorithms(4, seconds);
  EXPECT_EQ(algorithms.select(4, small_elements, DType::f32), InterNodeAlgorithm::whole);
  EXPECT_EQ(algorithms.select(4, large_elements, DType::f32), InterNodeAlgorithm::direct);
}

TEST(InterNodeAlgorithms, OneForAll) {
  for (const int owners : {2, 3, 20})
    EXPECT_EQ(AlgorithmTable(InterNodeAlgorithm::ring).select(owners, small_elements, DType::bf16),
              InterNodeAlgorithm::ring);
}

}  // namespace
}  // namespace kolo::internal::backend::internode
