#include "fixture.hpp"

namespace kolo::backend {
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

}  // namespace
}  // namespace kolo::backend
