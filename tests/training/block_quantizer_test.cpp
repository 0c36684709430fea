// SPDX-License-Identifier: Apache-2.0
#include "training/hooks/block_quantizer.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

namespace kolo::internal {
namespace {

using testing::Each;

constexpr std::int64_t block_elements = 32;

class Quantizer : public testing::Test {
 protected:
  std::vector<float> rounded(const std::vector<float>& values) {
    records_.assign(
        static_cast<std::size_t>(quantizer_.blocks(count(values)) * quantizer_.record_bytes()),
        std::byte{0xff});
    quantizer_.quantize(values.data(), count(values), records_.data());
    std::vector<float> result(values.size());
    quantizer_.dequantize(records_.data(), count(values), 1.0F, result.data());
    return result;
  }
  static std::int64_t count(const std::vector<float>& values) {
    return static_cast<std::int64_t>(values.size());
  }
  [[nodiscard]] float scale(std::int64_t block) const {
    float scale = 0.0F;
    std::memcpy(&scale, records_.data() + block * quantizer_.record_bytes(), sizeof scale);
    return scale;
  }

  const BlockQuantizer quantizer_{block_elements};
  std::vector<std::byte> records_;
};

TEST_F(Quantizer, KeepsMultiplesOfTheScale) {
  std::vector<float> values(3 * block_elements + 5);
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = 0.25F * (i % block_elements == 0 ? -127.0F : static_cast<float>(i % 100) - 50.0F);
  EXPECT_EQ(rounded(values), values);
}

TEST_F(Quantizer, RoundsToTheNearestTiesToEven) {
  const std::vector<float> values{127.0F, 0.5F, 1.5F, -0.5F, -2.5F, 2.49F, -126.6F};
  EXPECT_EQ(rounded(values), (std::vector<float>{127.0F, 0.0F, 2.0F, 0.0F, -2.0F, 2.0F, -127.0F}));
}

TEST_F(Quantizer, ErrsByHalfAScale) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  for (const float factor : {1e-34F, 1.0F, 3e37F}) {
    std::vector<float> values(1000);
    for (float& value : values) value = factor * normal(random);
    const std::vector<float> result = rounded(values);
    for (std::size_t i = 0; i < values.size(); ++i)
      EXPECT_LE(std::abs(values[i] - result[i]),
                0.5001F * scale(static_cast<std::int64_t>(i) / 32));
  }
}

TEST_F(Quantizer, TakesTinyBlocksForZero) {
  std::vector<float> values(2 * block_elements, 9e-36F);
  values.back() = 1.0F;
  const std::vector<float> result = rounded(values);
  EXPECT_EQ(scale(0), 0.0F);
  EXPECT_THAT(std::vector<float>(result.begin(), result.end() - 1), Each(0.0F));
  EXPECT_EQ(result.back(), 1.0F);
}

TEST_F(Quantizer, MarksBlocksThatAreNotFinite) {
  for (const float bad :
       {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
        std::numeric_limits<float>::quiet_NaN()}) {
    std::vector<float> values(2 * block_elements + 1, 1.0F);
    values[block_elements + 3] = bad;
    const std::vector<float> result = rounded(values);
    for (std::size_t i = 0; i < values.size(); ++i)
      EXPECT_EQ(std::isnan(result[i]), i / block_elements == 1) << i;
  }
}

TEST_F(Quantizer, KeepsTheErrorExceptWhereTheResultIsNot) {
  std::vector<float> values(2 * block_elements, 1.0F);
  values[0] = 100.0F;
  values[block_elements] = 100.0F;
  const std::vector<float> result = rounded(values);
  std::vector<std::byte> results = records_;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::memcpy(results.data() + quantizer_.record_bytes(), &nan, sizeof nan);
  std::vector<float> error(values.size(), 5.0F);
  quantizer_.keep_error(values.data(), records_.data(), results.data(), count(values),
                        error.data());
  for (std::size_t i = 0; i < values.size(); ++i)
    EXPECT_EQ(error[i], i < block_elements ? values[i] - result[i] : 5.0F);
}

TEST_F(Quantizer, Adds) {
  const std::vector<float> values(40, 2.0F);
  EXPECT_EQ(rounded(values), values);
  std::vector<float> sum(values.size(), 1.0F);
  quantizer_.add(records_.data(), count(values), sum.data());
  EXPECT_THAT(sum, Each(3.0F));
}

}  // namespace
}  // namespace kolo::internal
