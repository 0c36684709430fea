// SPDX-License-Identifier: Apache-2.0
// The effect of the order of ranks and of batches on Kolo's own allreduces.
#include "fixture.hpp"

namespace kolo::internal::backend {
namespace {

using AllreduceOrder = BackendTest;

TEST_F(AllreduceOrder, SumsInTheOrderOfTheRanks) {
  // 1e8 + 1 is 1e8 in f32: only the order decides whether the ones count.
  const auto value = [&](std::size_t, std::int64_t) {
    return rank_ == 0 ? 1e8F : rank_ == size_ - 1 ? -1e8F : 1.0F;
  };
  for (const std::int64_t length : {1, 1000}) {
    Tensors<float> tensors({length}, true, value);
    run(batch_of(allreduce_of(ReduceOp::sum), tensors));
    const float expected = size_ == 1 ? 1e8F : 0.0F;
    EXPECT_TRUE(tensors.hold([=](std::size_t, std::int64_t) { return expected; }, value));
  }
}

TEST_F(AllreduceOrder, ALaterBatchMayBeDoneFirst) {
  const auto one = [](std::size_t, std::int64_t) { return 1.0; };
  Tensors<double> large({10'000}, true, one);
  Tensors<double> small({1}, true, one);
  const auto first = backend_->start(batch_of(allreduce_of(ReduceOp::sum), large));
  const auto second = backend_->start(batch_of(allreduce_of(ReduceOp::sum), small));
  finish(*second);
  finish(*first);
  const auto size = [&](std::size_t, std::int64_t) { return static_cast<double>(size_); };
  EXPECT_TRUE(small.hold(size, one));
  EXPECT_TRUE(large.hold(size, one));
}

}  // namespace
}  // namespace kolo::internal::backend
