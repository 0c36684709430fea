// SPDX-License-Identifier: Apache-2.0
// Adasum, compared with the same computation in double on every rank alone.
#include <bit>

#include "fixture.hpp"

namespace kolo::internal {
namespace {

using testing::DoubleNear;
using testing::Pointwise;

using Vector = std::vector<double>;

double dot(const Vector& a, const Vector& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

Vector combine(const Vector& a, const Vector& b) {
  const double aa = dot(a, a);
  const double bb = dot(b, b);
  const double ab = dot(a, b);
  const double of_a = aa == 0.0 ? 1.0 : 1.0 - ab / (2.0 * aa);
  const double of_b = bb == 0.0 ? 1.0 : 1.0 - ab / (2.0 * bb);
  Vector sum;
  for (std::size_t i = 0; i < a.size(); ++i) sum.push_back(of_a * a[i] + of_b * b[i]);
  return sum;
}

/// Ranks beyond the largest power of two are folded first, then pairs at growing distance.
Vector adasum(std::vector<Vector> of_rank) {
  const std::size_t paired = std::bit_floor(of_rank.size());
  for (std::size_t i = paired; i < of_rank.size(); ++i)
    of_rank[i - paired] = combine(of_rank[i - paired], of_rank[i]);
  for (std::size_t distance = 1; distance < paired; distance *= 2)
    for (std::size_t i = 0; i < paired; i += 2 * distance)
      of_rank[i] = combine(of_rank[i], of_rank[i + distance]);
  return of_rank.front();
}

template <typename T>
class AdasumOf : public WithSession {
 protected:
  // Exact in every type.
  [[nodiscard]] static Vector input(int rank, int elements) {
    Vector values;
    for (int i = 0; i < elements; ++i) values.push_back((i * (rank + 3) + rank) % 17 - 8);
    return values;
  }

  static std::vector<T> rounded_to_type(const Vector& values) {
    std::vector<T> elements;
    for (const double value : values) elements.push_back(make<T>(value));
    return elements;
  }

  [[nodiscard]] Vector reference(int elements) const {
    std::vector<Vector> all;
    for (int rank = 0; rank < n_; ++rank) all.push_back(input(rank, elements));
    return adasum(all);
  }

  // Tolerance for a result below 32, after at most three roundings.
  static constexpr double tolerance = std::is_same_v<T, F16>    ? 0.05
                                      : std::is_same_v<T, BF16> ? 0.4
                                      : sizeof(T) == 4          ? 1e-5
                                                                : 1e-12;
};
TYPED_TEST_SUITE(AdasumOf, Reals);

TYPED_TEST(AdasumOf, EqualsTheReference) {
  for (const int elements : {1, 7, 8, 17 * this->n_ + 3, 4096, 40000}) {
    auto tensor = this->rounded_to_type(this->input(this->me_, elements));
    allreduce(view_of<TypeParam>(tensor), {.op = ReduceOp::adasum});
    EXPECT_THAT(values_of(tensor),
                Pointwise(DoubleNear(this->tolerance), this->reference(elements)));
  }
}

TYPED_TEST(AdasumOf, ScalesAreLinear) {
  auto tensor = this->rounded_to_type(this->input(this->me_, 100));
  allreduce(view_of<TypeParam>(tensor),
            {.op = ReduceOp::adasum, .prescale = 2.0, .postscale = 0.25});
  Vector expected = this->reference(100);
  for (double& value : expected) value *= 0.5;
  EXPECT_THAT(values_of(tensor), Pointwise(DoubleNear(this->tolerance), expected));
}

class Adasum : public WithSession {};

TEST_F(Adasum, OfParallelVectorsIsTheirAverage) {
  std::vector<double> tensor(100, 3.0);
  allreduce(tensor, {.op = ReduceOp::adasum});
  EXPECT_THAT(tensor, testing::Each(DoubleNear(3.0, 1e-12)));
}

TEST_F(Adasum, OfOrthogonalVectorsIsTheirSum) {
  std::vector<float> tensor(static_cast<std::size_t>(n_), 0.0F);
  tensor[static_cast<std::size_t>(me_)] = static_cast<float>(me_ + 1);
  allreduce(tensor, {.op = ReduceOp::adasum});
  for (int i = 0; i < n_; ++i)
    EXPECT_EQ(tensor[static_cast<std::size_t>(i)], static_cast<float>(i + 1));
}

TEST_F(Adasum, ZerosAddNothing) {
  std::vector<double> tensor(10, me_ == last_ ? 5.0 : 0.0);
  allreduce(tensor, {.op = ReduceOp::adasum});
  EXPECT_THAT(tensor, testing::Each(5.0));
  tensor.assign(10, 0.0);
  allreduce(tensor, {.op = ReduceOp::adasum});
  EXPECT_THAT(tensor, testing::Each(0.0));
}

TEST_F(Adasum, OfTinyAndOfLargeValuesStaysFinite) {
  for (const double magnitude : {1e-30, 1e30}) {
    std::vector<float> tensor(10, static_cast<float>(magnitude));
    allreduce(tensor, {.op = ReduceOp::adasum});
    EXPECT_THAT(tensor, testing::Each(testing::FloatNear(static_cast<float>(magnitude),
                                                         static_cast<float>(magnitude * 1e-5))));
  }
}

TEST_F(Adasum, OfAGroupIsTensorByTensor) {
  // Alike in the first tensor, orthogonal in the second.
  std::vector<double> same(4, 2.0);
  std::vector<double> own(static_cast<std::size_t>(n_), 0.0);
  own[static_cast<std::size_t>(me_)] = 1.0;
  grouped_allreduce({same, own}, {.op = ReduceOp::adasum, .fuse_exactly = true});
  EXPECT_THAT(same, testing::Each(DoubleNear(2.0, 1e-12)));
  EXPECT_THAT(own, testing::Each(1.0));
}

TEST_F(Adasum, OfTensorsThatTravelTogetherIsTensorByTensor) {
  std::vector<std::vector<double>> tensors;
  std::vector<Future<void>> futures;
  for (int i = 0; i < 10; ++i) tensors.emplace_back(5, i);
  for (int i = 0; i < 10; ++i)
    futures.push_back(allreduce_async(tensors[static_cast<std::size_t>(i)],
                                      {.name = std::to_string(i), .op = ReduceOp::adasum}));
  for (Future<void>& future : futures) future.wait();
  for (int i = 0; i < 10; ++i)
    EXPECT_THAT(tensors[static_cast<std::size_t>(i)], testing::Each(DoubleNear(i, 1e-12)));
}

TEST_F(Adasum, CompressedAndOutOfPlace) {
  const std::vector<float> input(16, static_cast<float>(8));
  std::vector<float> output(16);
  allreduce(input, output, {.op = ReduceOp::adasum, .compression = Compression::fp16});
  EXPECT_THAT(output, testing::Each(8.0F));
  EXPECT_THAT(input, testing::Each(8.0F));
}

}  // namespace
}  // namespace kolo::internal
