// SPDX-License-Identifier: Apache-2.0
#include "fixture.hpp"

namespace kolo::internal::backend {
namespace {

struct Matrix {
  std::int64_t rows;
  std::int64_t row_elements;
};

template <typename T>
class Reducescatter : public BackendTest {
 protected:
  /// Inputs are `element`; `expected(i, k)` is of the k-th element of the whole result.
  void expect_result(const Descriptor& kind, const std::vector<Matrix>& shapes, auto expected) {
    Lengths lengths;
    for (const Matrix& shape : shapes) lengths.push_back(shape.rows * shape.row_elements);
    const auto value = [&](std::size_t i, std::int64_t k) { return make<T>(element(rank_, i, k)); };
    Tensors<T> inputs(lengths, true, value);
    std::vector<Array<T>> outputs;
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      const std::int64_t rows = reducescatter_rows(shapes[i].rows, rank_, size_);
      outputs.emplace_back(rows * shapes[i].row_elements);
      inputs.member(i).rows = shapes[i].rows;
      inputs.member(i).row_elements = shapes[i].row_elements;
      inputs.member(i).output = outputs[i].elements.get();
    }
    run(batch_of(kind, inputs));
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      std::int64_t begin = 0;
      for (int rank = 0; rank < rank_; ++rank)
        begin += reducescatter_rows(shapes[i].rows, rank, size_) * shapes[i].row_elements;
      for (std::int64_t k = 0; k < outputs[i].length; ++k)
        ASSERT_EQ(value_of(outputs[i][k]), value_of(make<T>(expected(i, begin + k))))
            << "element " << k << " of tensor " << i;
    }
    EXPECT_TRUE(inputs.hold(value, value));
  }
};
TYPED_TEST_SUITE(Reducescatter, Numbers);

const std::vector<std::vector<Matrix>> shapes{
    {{0, 1}},    {{1, 1}},   {{4, 1}}, {{5, 3}},
    {{1000, 1}}, {{7, 100}}, {{3, 0}}, {{2, 700}, {0, 5}, {9, 11}, {1, 1}}};

TYPED_TEST(Reducescatter, GivesEachRankItsRows) {
  const int size = this->size_;
  for (const auto& batch : shapes) {
    this->expect_result(reduction_of(OperationType::reducescatter, ReduceOp::sum), batch,
                        [=](std::size_t i, std::int64_t k) { return sum_of_elements(size, i, k); });
    this->expect_result(reduction_of(OperationType::reducescatter, ReduceOp::max), batch,
                        [=](std::size_t i, std::int64_t k) { return element(size - 1, i, k); });
  }
}

TYPED_TEST(Reducescatter, ScalesAndCompresses) {
  Descriptor kind = reduction_of(OperationType::reducescatter, ReduceOp::sum, Compression::fp16);
  kind.prescale = 2.0;
  kind.postscale = 0.5;
  const int size = this->size_;
  for (const auto& batch : shapes)
    this->expect_result(kind, batch,
                        [=](std::size_t i, std::int64_t k) { return sum_of_elements(size, i, k); });
}

class ReducescatterOfFloats : public Reducescatter<float> {};

TEST_F(ReducescatterOfFloats, TheSumOfCompressedElementsIsNotRoundedAgain) {
  Tensors<float> input({8 * size_}, true,
                       [&](std::size_t, std::int64_t) { return rank_ == 0 ? 2048.0F : 1.0F; });
  Array<float> output(8);
  input.member(0).output = output.elements.get();
  run(batch_of(reduction_of(OperationType::reducescatter, ReduceOp::sum, Compression::fp16),
               input));
  for (std::int64_t k = 0; k < 8; ++k)
    EXPECT_EQ(output[k], 2048.0F + static_cast<float>(size_ - 1));
}

}  // namespace
}  // namespace kolo::internal::backend
