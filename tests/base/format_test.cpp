// SPDX-License-Identifier: Apache-2.0
#include "base/format.hpp"

#include <gtest/gtest.h>

#include "base/dtype.hpp"

namespace kolo::internal {
namespace {

TEST(Format, Shapes) {
  EXPECT_EQ(to_string(Shape{}), "[]");
  EXPECT_EQ(to_string(Shape{7}), "[7]");
  EXPECT_EQ(to_string(Shape{64, 3}), "[64, 3]");
  EXPECT_EQ(to_string(Shape{0, 5'000'000'000}), "[0, 5000000000]");
}

TEST(Format, NamesAndSizesOfEveryDtype) {
  struct Fact {
    DType dtype;
    const char* name;
    std::size_t size;
  };
  for (const Fact& fact :
       {Fact{DType::u8, "u8", 1}, Fact{DType::i8, "i8", 1}, Fact{DType::u16, "u16", 2},
        Fact{DType::i16, "i16", 2}, Fact{DType::u32, "u32", 4}, Fact{DType::i32, "i32", 4},
        Fact{DType::u64, "u64", 8}, Fact{DType::i64, "i64", 8}, Fact{DType::f16, "f16", 2},
        Fact{DType::bf16, "bf16", 2}, Fact{DType::f32, "f32", 4}, Fact{DType::f64, "f64", 8},
        Fact{DType::boolean, "bool", 1}}) {
    EXPECT_EQ(to_string(fact.dtype), fact.name);
    EXPECT_EQ(size_of(fact.dtype), fact.size) << fact.name;
    EXPECT_EQ(is_floating(fact.dtype), std::string(fact.name).find('f') != std::string::npos);
    EXPECT_EQ(is_half(fact.dtype), is_floating(fact.dtype) && fact.size == 2) << fact.name;
  }
}

TEST(Format, Devices) {
  EXPECT_EQ(to_string(Device{}), "cpu");
  EXPECT_EQ(to_string(Device{DeviceType::cuda, 1}), "cuda:1");
}

TEST(Format, DescriptorsLeaveDefaultsOut) {
  EXPECT_EQ(to_string(Descriptor{}), "barrier");
  EXPECT_EQ(to_string(Descriptor{.type = OperationType::allreduce,
                                 .tensors = {{DType::f32, {64, 3}}},
                                 .op = ReduceOp::average}),
            "allreduce average f32 [64, 3]");
  EXPECT_EQ(to_string(Descriptor{
                .type = OperationType::broadcast, .tensors = {{DType::i64, {7}}}, .root = 2}),
            "broadcast i64 [7] from rank 2");
  EXPECT_EQ(to_string(Descriptor{.type = OperationType::broadcast_string, .root = 0}),
            "string broadcast from rank 0");
}

TEST(Format, DescriptorsSayWhatIsNotDefault) {
  EXPECT_EQ(to_string(Descriptor{.type = OperationType::allreduce,
                                 .tensors = {{DType::bf16, {2}}},
                                 .op = ReduceOp::sum,
                                 .prescale = 0.5,
                                 .postscale = 3.0,
                                 .device = {DeviceType::cuda, 1},
                                 .step = 4}),
            "allreduce sum bf16 [2] on cuda:1, prescale 0.5, postscale 3, step 4");
}

}  // namespace
}  // namespace kolo::internal
