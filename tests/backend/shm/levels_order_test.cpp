// SPDX-License-Identifier: Apache-2.0
// The order in which elements are combined if ranks are divided by NUMA nodes: first the ranks of
// each node, in rank order, then the nodes. KOLO_TEST_NODES is the layout of the nodes.
#include <algorithm>
#include <map>
#include <type_traits>

#include "../fixture.hpp"
#include "node_layouts.hpp"

namespace kolo::internal::backend {
namespace {

/// Elements most of whose sums are not exact, so that another order gives other bits.
template <typename T>
class LevelsOrder : public BackendTest {
 protected:
  using Computed = std::conditional_t<std::is_same_v<T, double>, double, float>;

  static T value(int rank, std::size_t tensor, std::int64_t k) {
    const std::int64_t mixed =
        (k * 7919 + rank * 104'729 + static_cast<std::int64_t>(tensor)) % 9973;
    return make<T>(static_cast<double>(mixed - 4000) / 997.0);
  }
  auto own_value() const {
    return [rank = rank_](std::size_t i, std::int64_t k) { return value(rank, i, k); };
  }

  [[nodiscard]] T expected(std::size_t tensor, std::int64_t k, int divisor = 1) const {
    std::map<int, Computed> nodes;
    for (int rank = 0; rank < size_; ++rank) {
      const auto element = static_cast<Computed>(value_of(value(rank, tensor, k)));
      const auto [partial, is_first] = nodes.try_emplace(nodes_[static_cast<std::size_t>(rank)]);
      partial->second = is_first ? element : partial->second + element;
    }
    Computed sum = nodes.begin()->second;
    for (auto node = std::next(nodes.begin()); node != nodes.end(); ++node) sum += node->second;
    return make<T>(sum / static_cast<Computed>(divisor));
  }

  const std::vector<int> nodes_ = nodes_in(KOLO_TEST_NODES, size_);
};
TYPED_TEST_SUITE(LevelsOrder, Reals);

const std::vector<Lengths> lengths_of_batches{
    {1}, {3}, {64}, {1000}, {20'000}, {1, 1, 40}, {5, 3000, 7, 300}, {0, 2500, 2500}};

TYPED_TEST(LevelsOrder, AllreducesCombineNodeByNode) {
  for (const std::int64_t bytes : {std::int64_t{256}, default_piece_bytes()}) {
    this->start_anew(bytes);
    for (const Lengths& lengths : lengths_of_batches) {
      for (const bool in_place : {true, false}) {
        SCOPED_TRACE(testing::PrintToString(lengths) + (in_place ? " in place" : ""));
        Tensors<TypeParam> tensors(lengths, in_place, this->own_value());
        this->run(this->batch_of(allreduce_of(ReduceOp::sum), tensors));
        EXPECT_TRUE(
            tensors.hold([&](std::size_t i, std::int64_t k) { return this->expected(i, k); },
                         this->own_value()));
      }
    }
  }
}

TYPED_TEST(LevelsOrder, AveragesAreDividedOnce) {
  Tensors<TypeParam> tensors({3000}, true, this->own_value());
  this->run(this->batch_of(allreduce_of(ReduceOp::average), tensors));
  EXPECT_TRUE(
      tensors.hold([&](std::size_t i, std::int64_t k) { return this->expected(i, k, this->size_); },
                   this->own_value()));
}

TYPED_TEST(LevelsOrder, AReducescatterGivesTheBitsOfAnAllreduce) {
  for (const std::int64_t bytes : {std::int64_t{256}, default_piece_bytes()}) {
    this->start_anew(bytes);
    for (const std::int64_t length : {1, 40, 3001}) {
      SCOPED_TRACE(length);
      Tensors<TypeParam> inputs({length}, true, this->own_value());
      Array<TypeParam> rows(reducescatter_rows(length, this->rank_, this->size_));
      inputs.member(0).output = rows.elements.get();
      this->run(
          this->batch_of(reduction_of(OperationType::reducescatter, ReduceOp::average), inputs));
      std::int64_t begin = 0;
      for (int rank = 0; rank < this->rank_; ++rank)
        begin += reducescatter_rows(length, rank, this->size_);
      for (std::int64_t k = 0; k < rows.length; ++k)
        ASSERT_EQ(value_of(rows[k]), value_of(this->expected(0, begin + k, this->size_))) << k;
    }
  }
}

}  // namespace
}  // namespace kolo::internal::backend
