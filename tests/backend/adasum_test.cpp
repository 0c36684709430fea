// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <cstring>

#include "fixture.hpp"

namespace kolo::internal::backend {
namespace {

using Vector = std::vector<double>;

Vector combined(const Vector& a, const Vector& b) {
  double ab = 0.0;
  double aa = 0.0;
  double bb = 0.0;
  for (std::size_t k = 0; k < a.size(); ++k) {
    ab += a[k] * b[k];
    aa += a[k] * a[k];
    bb += b[k] * b[k];
  }
  Vector result;
  for (std::size_t k = 0; k < a.size(); ++k)
    result.push_back((aa == 0 ? 1.0 : 1.0 - ab / (2.0 * aa)) * a[k] +
                     (bb == 0 ? 1.0 : 1.0 - ab / (2.0 * bb)) * b[k]);
  return result;
}

/// The same tree: ranks beyond the largest power of two are folded in, then pairs at growing
/// distances.
Vector adasum_of(std::vector<Vector> vectors) {
  std::size_t paired = 1;
  while (2 * paired <= vectors.size()) paired *= 2;
  for (std::size_t i = paired; i < vectors.size(); ++i)
    vectors[i - paired] = combined(vectors[i - paired], vectors[i]);
  for (std::size_t distance = 1; distance < paired; distance *= 2)
    for (std::size_t i = 0; i < paired; i += 2 * distance)
      vectors[i] = combined(vectors[i], vectors[i + distance]);
  return vectors.front();
}

double value(int rank, std::size_t tensor, std::int64_t k) {
  return std::sin(static_cast<double>(k) * 0.37 + 2.0 * rank + static_cast<double>(tensor)) +
         0.5 * rank;
}

template <typename T>
class AdasumOf : public BackendTest {
 protected:
  /// Half types and compression round at every level of the tree.
  void expect_result(Descriptor kind, double allowed) {
    const Lengths lengths{1, 1000, 0, 70'000};
    Tensors<T> tensors(lengths, false,
                       [&](std::size_t i, std::int64_t k) { return make<T>(value(rank_, i, k)); });
    run(batch_of(kind, tensors));
    for (std::size_t i = 0; i < lengths.size(); ++i) {
      std::vector<Vector> vectors(static_cast<std::size_t>(size_));
      for (int rank = 0; rank < size_; ++rank)
        for (std::int64_t k = 0; k < lengths[i]; ++k)
          vectors[static_cast<std::size_t>(rank)].push_back(kind.prescale *
                                                            value_of(make<T>(value(rank, i, k))));
      const Vector expected = adasum_of(vectors);
      for (std::int64_t k = 0; k < lengths[i]; ++k)
        ASSERT_NEAR(value_of(tensors.output(i)[k]),
                    kind.postscale * expected[static_cast<std::size_t>(k)], allowed)
            << "element " << k << " of tensor " << i;
      expect_same_bits(tensors.output(i));
    }
  }

  void expect_same_bits(const Array<T>& array) {
    const auto bytes = static_cast<std::size_t>(array.length) * sizeof(T);
    std::vector<std::byte> of_root(bytes);
    if (rank_ == 0 && bytes > 0) std::memcpy(of_root.data(), array.elements.get(), bytes);
    MPI_Bcast(of_root.data(), static_cast<int>(bytes), MPI_BYTE, 0, comm_);
    EXPECT_TRUE(bytes == 0 || std::memcmp(of_root.data(), array.elements.get(), bytes) == 0);
  }

  /// Tolerance for values up to 8 that are rounded a few times.
  static constexpr double tolerance = std::is_same_v<T, double>  ? 1e-12
                                      : std::is_same_v<T, float> ? 1e-5
                                      : std::is_same_v<T, F16>   ? 0.02
                                                                 : 0.15;
};
TYPED_TEST_SUITE(AdasumOf, Reals);

TYPED_TEST(AdasumOf, IsTheReferences) {
  this->expect_result(allreduce_of(ReduceOp::adasum), this->tolerance);
}

TYPED_TEST(AdasumOf, Scales) {
  Descriptor kind = allreduce_of(ReduceOp::adasum);
  kind.prescale = 0.5;
  kind.postscale = 2.0;
  this->expect_result(kind, this->tolerance);
}

TYPED_TEST(AdasumOf, Compression) {
  this->expect_result(allreduce_of(ReduceOp::adasum, Compression::fp16),
                      std::max(this->tolerance, 0.02));
}

TYPED_TEST(AdasumOf, OfEqualVectorsIsThatVector) {
  const auto same = [](std::size_t i, std::int64_t k) { return make<TypeParam>(element(1, i, k)); };
  Tensors<TypeParam> tensors({3, 500}, true, same);
  this->run(this->batch_of(allreduce_of(ReduceOp::adasum), tensors));
  EXPECT_TRUE(tensors.hold(same, same));
}

TYPED_TEST(AdasumOf, OfOrthogonalVectorsIsTheSum) {
  const auto own = [&](std::size_t, std::int64_t k) {
    return make<TypeParam>(k % this->size_ == this->rank_ ? k % 7 + 1 : 0);
  };
  Tensors<TypeParam> tensors({400}, true, own);
  this->run(this->batch_of(allreduce_of(ReduceOp::adasum), tensors));
  EXPECT_TRUE(
      tensors.hold([](std::size_t, std::int64_t k) { return make<TypeParam>(k % 7 + 1); }, own));
}

}  // namespace
}  // namespace kolo::internal::backend
