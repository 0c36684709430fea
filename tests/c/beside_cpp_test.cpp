// SPDX-License-Identifier: Apache-2.0
// The C interface beside the C++ one, in one program: the same bits, and for a mistake the same
// text.
#include <gtest/gtest.h>

#include <cstdint>
#include <new>
#include <random>
#include <vector>

#include "../session/fixture.hpp"
#include "kolo/c/kolo.h"

namespace kolo::internal {
namespace {

class BesideCpp : public WithSession {
 protected:
  [[nodiscard]] std::vector<float> values(std::size_t count) const {
    std::mt19937 random(static_cast<unsigned>(7 + me_));
    std::uniform_real_distribution<float> uniform(-1.0F, 1.0F);
    std::vector<float> result(count);
    for (float& value : result) value = uniform(random);
    return result;
  }
};

kolo_tensor tensor_in_c(std::vector<float>& values, const std::int64_t& count) {
  return {values.data(), KOLO_F32, {KOLO_CPU, 0}, 1, &count};
}

TEST_F(BesideCpp, AllreducesHaveTheSameBits) {
  for (const ReduceOp op : {ReduceOp::average, ReduceOp::sum, ReduceOp::min, ReduceOp::max,
                            ReduceOp::product, ReduceOp::adasum}) {
    for (const std::size_t size : {1UL, 1000UL, 100000UL}) {
      std::vector<float> in_cpp = values(size);
      std::vector<float> in_c = in_cpp;
      allreduce(in_cpp, {.op = op, .compression = Compression::bf16});
      const auto count = static_cast<std::int64_t>(size);
      const kolo_tensor tensor = tensor_in_c(in_c, count);
      kolo_reduce_options options = KOLO_REDUCE_OPTIONS;
      options.op = static_cast<kolo_reduce_op>(op);
      options.compression = KOLO_COMPRESSION_BF16;
      ASSERT_EQ(kolo_allreduce(&tensor, &options), KOLO_OK);
      EXPECT_EQ(in_c, in_cpp) << "operator " << static_cast<int>(op);
    }
  }
}

TEST_F(BesideCpp, OneOperationHasRanksOfBothInterfaces) {
  std::vector<float> sums = values(100);
  std::vector<float> expected = sums;
  allreduce(expected, {.op = ReduceOp::sum});
  const std::int64_t count = 100;
  const kolo_tensor tensor = tensor_in_c(sums, count);
  kolo_reduce_options options = KOLO_REDUCE_OPTIONS;
  options.name = "mixed";
  options.op = KOLO_SUM;
  if (me_ % 2 == 0)
    ASSERT_EQ(kolo_allreduce(&tensor, &options), KOLO_OK);
  else
    allreduce(sums, {.name = "mixed", .op = ReduceOp::sum});
  EXPECT_EQ(sums, expected);
}

TEST_F(BesideCpp, OneMistakeHasOneText) {
  if (n_ == 1) GTEST_SKIP() << "one rank cannot disagree";
  std::vector<float> data(me_ == 0 ? 3 : 4);
  const auto error =
      thrown_by<Mismatch>([&] { allreduce(data, {.name = "x", .op = ReduceOp::sum}); });
  const auto count = static_cast<std::int64_t>(data.size());
  const kolo_tensor tensor = tensor_in_c(data, count);
  kolo_reduce_options options = KOLO_REDUCE_OPTIONS;
  options.name = "x";
  options.op = KOLO_SUM;
  EXPECT_EQ(kolo_allreduce(&tensor, &options), KOLO_MISMATCH);
  EXPECT_STREQ(kolo_last_error_message(), error.what());
  EXPECT_EQ(kolo_last_error_tensor(), error.tensor());
  const int* ranks = nullptr;
  const std::size_t known = kolo_last_error_ranks(&ranks);
  EXPECT_EQ(std::vector<int>(ranks, ranks + known), error.ranks());
}

TEST_F(BesideCpp, EnumeratorsHaveTheSameNumbers) {
  EXPECT_EQ(KOLO_BOOL, static_cast<int>(DType::boolean));
  EXPECT_EQ(KOLO_BF16, static_cast<int>(DType::bf16));
  EXPECT_EQ(KOLO_F32, static_cast<int>(DType::f32));
  EXPECT_EQ(KOLO_F64, static_cast<int>(DType::f64));
  EXPECT_EQ(KOLO_I64, static_cast<int>(DType::i64));
  EXPECT_EQ(KOLO_ADASUM, static_cast<int>(ReduceOp::adasum));
  EXPECT_EQ(KOLO_COMPRESSION_BF16, static_cast<int>(Compression::bf16));
  EXPECT_EQ(KOLO_OVER_PRESENT, static_cast<int>(AverageOver::present));
  EXPECT_EQ(KOLO_CUDA, static_cast<int>(DeviceType::cuda));
}

TEST_F(BesideCpp, EveryStatusHasAName) {
  for (int status = KOLO_OK; status <= KOLO_FOREIGN_EXCEPTION; ++status)
    EXPECT_STRNE(kolo_status_name(static_cast<kolo_status>(status)), "unknown status") << status;
  EXPECT_STREQ(kolo_status_name(static_cast<kolo_status>(1000)), "unknown status");
}

}  // namespace
}  // namespace kolo::internal
