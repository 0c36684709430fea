// SPDX-License-Identifier: Apache-2.0
#include "fusion/select.hpp"

#include <gmock/gmock.h>

namespace kolo::internal::fusion {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

Descriptor allreduce(std::int64_t elements, DType dtype = DType::f32) {
  return {.type = OperationType::allreduce, .tensors = {{dtype, elements}}};
}

std::vector<std::size_t> plan(const std::vector<Descriptor>& ready, std::int64_t threshold) {
  return select_batch(
      ready.size(), [&](std::size_t i) -> const Descriptor& { return ready[i]; }, threshold);
}

TEST(Fusible, OnlyShapesAndStepsMayDiffer) {
  const Descriptor one = allreduce(10);
  Descriptor other = allreduce(20);
  other.step = 3;
  EXPECT_TRUE(fusible(one, other));
  const auto differs = [&](auto change) {
    Descriptor changed = one;
    change(changed);
    return !fusible(one, changed) && !fusible(changed, one);
  };
  EXPECT_TRUE(differs([](Descriptor& d) { d.type = OperationType::broadcast; }));
  EXPECT_TRUE(differs([](Descriptor& d) { d.tensors.front().dtype = DType::f64; }));
  EXPECT_TRUE(differs([](Descriptor& d) { d.op = ReduceOp::average; }));
  EXPECT_TRUE(differs([](Descriptor& d) { d.root = 0; }));
  EXPECT_TRUE(differs([](Descriptor& d) { d.prescale = 0.5; }));
  EXPECT_TRUE(differs([](Descriptor& d) { d.postscale = 0.5; }));
  EXPECT_TRUE(differs([](Descriptor& d) { d.compression = Compression::fp16; }));
  EXPECT_TRUE(differs([](Descriptor& d) { d.average_over = AverageOver::present; }));
  EXPECT_TRUE(differs([](Descriptor& d) { d.alone = true; }));
  EXPECT_TRUE(differs([](Descriptor& d) { d.device = {DeviceType::cuda, 0}; }));
}

TEST(Fusible, TextsAndBarriersTravelAlone) {
  const Descriptor text{.type = OperationType::broadcast_string, .root = 0};
  EXPECT_FALSE(fusible(text, text));
  EXPECT_FALSE(fusible(Descriptor{}, Descriptor{}));
  Descriptor alone = allreduce(1);
  alone.alone = true;
  EXPECT_FALSE(fusible(alone, alone));
}

TEST(SelectBatch, AGroupCountsAllItsTensors) {
  Descriptor group = allreduce(1);
  group.tensors.push_back({DType::u8, Shape(12)});
  EXPECT_THAT(plan({allreduce(1), group, allreduce(1)}, 20), ElementsAre(0, 1));
  EXPECT_THAT(plan({allreduce(1), group, allreduce(1)}, 19), ElementsAre(0, 2));
}

TEST(SelectBatch, GathersTravelTogetherThoughTheirSizesAreUnknown) {
  const Descriptor gather{.type = OperationType::allgather,
                          .tensors = {{DType::f32, Shape{any_length, 1000}}}};
  EXPECT_THAT(plan({gather, gather}, 64), ElementsAre(0, 1));
}

TEST(SelectBatch, NothingReadyIsNoBatch) { EXPECT_THAT(plan({}, 100), IsEmpty()); }

TEST(SelectBatch, ThresholdsOfZeroAndOneMeanNoFusion) {
  for (const std::int64_t threshold : {0, 1}) {
    EXPECT_THAT(plan({allreduce(1), allreduce(1)}, threshold), ElementsAre(0));
    EXPECT_THAT(plan({allreduce(0), allreduce(0)}, threshold), ElementsAre(0));
    EXPECT_THAT(plan({allreduce(1, DType::u8), allreduce(0, DType::u8)}, threshold),
                ElementsAre(0));
  }
}

TEST(SelectBatch, TakesWhatFitsExactly) {
  EXPECT_THAT(plan({allreduce(2), allreduce(3), allreduce(1)}, 20), ElementsAre(0, 1));
  EXPECT_THAT(plan({allreduce(2), allreduce(3), allreduce(1)}, 24), ElementsAre(0, 1, 2));
}

TEST(SelectBatch, CountsBytesOfTheTensorsOwnType) {
  const std::vector<Descriptor> halves{allreduce(4, DType::f16), allreduce(4, DType::f16)};
  EXPECT_THAT(plan(halves, 15), ElementsAre(0));
  EXPECT_THAT(plan(halves, 16), ElementsAre(0, 1));
}

TEST(SelectBatch, TakesTheFirstWhateverItsSize) {
  EXPECT_THAT(plan({allreduce(1000), allreduce(1), allreduce(0)}, 64), ElementsAre(0));
}

TEST(SelectBatch, LooksPastWhatIsNotFusibleOrDoesNotFit) {
  const std::vector<Descriptor> ready{allreduce(2),   allreduce(2, DType::i32),
                                      allreduce(100), Descriptor{},
                                      allreduce(2),   allreduce(0)};
  EXPECT_THAT(plan(ready, 16), ElementsAre(0, 4, 5));
}

TEST(SelectBatch, LooksAtABoundedNumberThatDoNotFit) {
  std::vector<Descriptor> ready(10'000, allreduce(4));
  ready.push_back(allreduce(0));
  int looked_at = 0;
  const auto count = [&](std::size_t i) -> const Descriptor& {
    ++looked_at;
    return ready[i];
  };
  EXPECT_THAT(select_batch(ready.size(), count, 16), ElementsAre(0));
  EXPECT_EQ(looked_at, 1 + max_passed_over);
}

TEST(SelectBatch, AHugeThresholdTakesAllOfAKind) {
  std::vector<Descriptor> ready;
  for (int i = 0; i < 1000; ++i) ready.push_back(allreduce(i, i % 2 == 0 ? DType::f32 : DType::i8));
  const std::vector<std::size_t> batch = plan(ready, std::int64_t{1} << 60);
  ASSERT_EQ(batch.size(), 500U);
  for (std::size_t i = 0; i < batch.size(); ++i) EXPECT_EQ(batch[i], 2 * i);
}

TEST(SelectBatch, TensorsBeyondTwoGibibytesAreCountedRight) {
  const std::int64_t half = std::int64_t{3} << 30;  // elements: 12 GiB
  EXPECT_THAT(plan({allreduce(half), allreduce(half)}, std::int64_t{24} << 30), ElementsAre(0, 1));
  EXPECT_THAT(plan({allreduce(half), allreduce(half)}, (std::int64_t{24} << 30) - 1),
              ElementsAre(0));
}

}  // namespace
}  // namespace kolo::internal::fusion
