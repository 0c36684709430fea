// SPDX-License-Identifier: Apache-2.0
#include "reduction/adasum.hpp"

#include <gmock/gmock.h>

#include <vector>

#include "../support/elements.hpp"

namespace kolo::internal::reduction {
namespace {

template <typename T>
class Adasum : public testing::Test {
 protected:
  static std::vector<T> make_vector(const std::vector<double>& values) {
    std::vector<T> made;
    for (const double value : values) made.push_back(make<T>(value));
    return made;
  }

  static std::vector<double> combined(const std::vector<double>& first,
                                      const std::vector<double>& second) {
    const std::vector<T> a = make_vector(first);
    const std::vector<T> b = make_vector(second);
    const auto elements = static_cast<std::int64_t>(a.size());
    Dots dots;
    add_dots(dtype<T>(), bytes_of(a.data()), bytes_of(b.data()), elements, dots);
    std::vector<T> result(a.size());
    add_shares(dtype<T>(), bytes_of(a.data()), bytes_of(b.data()), adasum_shares(dots), elements,
               bytes_of(result.data()));
    std::vector<double> values;
    for (const T value : result) values.push_back(value_of(value));
    return values;
  }
};
TYPED_TEST_SUITE(Adasum, Reals);

using testing::ElementsAre;

TYPED_TEST(Adasum, AddsWhatIsOrthogonal) {
  EXPECT_THAT(this->combined({3, 0, 0}, {0, 4, 0}), ElementsAre(3, 4, 0));
}

TYPED_TEST(Adasum, AveragesWhatIsParallel) {
  EXPECT_THAT(this->combined({1, 2}, {1, 2}), ElementsAre(1, 2));
  EXPECT_THAT(this->combined({2, 4}, {4, 8}), ElementsAre(3, 6));
}

TYPED_TEST(Adasum, WeighsWhatIsBetween) {
  // a.b = 4, |a|^2 = 8, |b|^2 = 4: shares of 3/4 and 1/2.
  EXPECT_THAT(this->combined({2, 2}, {2, 0}), ElementsAre(2.5, 1.5));
}

TYPED_TEST(Adasum, BesideZerosTheOtherCountsFully) {
  EXPECT_THAT(this->combined({0, 0}, {1, 2}), ElementsAre(1, 2));
  EXPECT_THAT(this->combined({1, 2}, {0, 0}), ElementsAre(1, 2));
  EXPECT_THAT(this->combined({0, 0}, {0, 0}), ElementsAre(0, 0));
}

TYPED_TEST(Adasum, DotsMayBeAddedInBlocks) {
  const std::vector<TypeParam> a(1001, make<TypeParam>(3));
  const std::vector<TypeParam> b(1001, make<TypeParam>(2));
  Dots dots;
  for (std::int64_t begin = 0; begin < 1001; begin += 77)
    add_dots(dtype<TypeParam>(), bytes_of(a.data() + begin), bytes_of(b.data() + begin),
             std::min<std::int64_t>(77, 1001 - begin), dots);
  EXPECT_EQ(dots.ab, 6 * 1001);
  EXPECT_EQ(dots.aa, 9 * 1001);
  EXPECT_EQ(dots.bb, 4 * 1001);
}

TYPED_TEST(Adasum, TheOutputMayBeEitherVector) {
  const std::vector<TypeParam> a(100, make<TypeParam>(2));
  const std::vector<TypeParam> b(100, make<TypeParam>(4));
  const Shares shares{.of_a = 0.5, .of_b = 2.0};
  std::vector<TypeParam> first = a;
  add_shares(dtype<TypeParam>(), bytes_of(first.data()), bytes_of(b.data()), shares, 100,
             bytes_of(first.data()));
  std::vector<TypeParam> second = b;
  add_shares(dtype<TypeParam>(), bytes_of(a.data()), bytes_of(second.data()), shares, 100,
             bytes_of(second.data()));
  for (std::size_t k = 0; k < 100; ++k) {
    ASSERT_EQ(value_of(first[k]), 9.0);
    ASSERT_EQ(value_of(second[k]), 9.0);
  }
}

}  // namespace
}  // namespace kolo::internal::reduction
