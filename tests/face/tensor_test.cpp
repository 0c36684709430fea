// SPDX-License-Identifier: Apache-2.0
// Valid and invalid sources of a view. The compiler checks most of them.
#include "kolo/tensor.hpp"

#include <gtest/gtest.h>

#include <array>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "kolo/collectives.hpp"
#include "kolo/future.hpp"

namespace kolo::internal {
namespace {

template <typename From>
constexpr bool makes_a_view = std::is_convertible_v<From, TensorView>;

// Borrowed ranges of elements that can be written, and lvalues of arithmetic types.
static_assert(makes_a_view<std::vector<float>&>);
static_assert(makes_a_view<std::array<double, 3>&>);
static_assert(makes_a_view<std::span<std::int64_t>>);
static_assert(makes_a_view<std::vector<std::byte>&>);
static_assert(makes_a_view<std::vector<char>&>);
static_assert(makes_a_view<float&>);
static_assert(makes_a_view<bool&>);
static_assert(makes_a_view<long long&>);

// Never what would be gone, could not be written, or has no dtype.
static_assert(!makes_a_view<std::vector<float>>);
static_assert(!makes_a_view<const std::vector<float>&>);
static_assert(!makes_a_view<std::span<const float>>);
static_assert(!makes_a_view<float>);
static_assert(!makes_a_view<const float&>);
static_assert(!makes_a_view<std::string&>);
static_assert(!makes_a_view<std::vector<bool>&>);
static_assert(!makes_a_view<std::vector<std::string>&>);
static_assert(!makes_a_view<long double&>);

static_assert(dtype_of<float> == DType::f32 && dtype_of<double> == DType::f64);
static_assert(dtype_of<char> == DType::u8 && dtype_of<std::byte> == DType::u8);
static_assert(dtype_of<signed char> == DType::i8 && dtype_of<unsigned char> == DType::u8);
static_assert(dtype_of<long> == DType::i64 && dtype_of<long long> == DType::i64);
static_assert(dtype_of<std::uint16_t> == DType::u16 && dtype_of<bool> == DType::boolean);

// An object that owns its elements may be moved into an operation; an object that borrows them may
// not.
template <typename Range>
constexpr bool may_be_given_away = requires(Range&& range) {
  {
    allreduce_async(std::forward<Range>(range))
    } -> std::same_as<Future<std::remove_cvref_t<Range>>>;
};
static_assert(may_be_given_away<std::vector<float>>);
static_assert(!may_be_given_away<std::vector<float>&>);
static_assert(!may_be_given_away<std::span<float>>);

static_assert(!std::is_copy_constructible_v<Future<void>> &&
              std::is_move_constructible_v<Future<void>>);

TEST(TensorView, RangesAreFlatAndScalarsHaveNoDimensions) {
  std::vector<std::int32_t> range(6);
  const TensorView flat(range);
  EXPECT_EQ(flat.data(), range.data());
  EXPECT_EQ(flat.shape(), Shape(6));
  EXPECT_EQ(flat.dtype(), DType::i32);
  EXPECT_EQ(flat.device(), Device{});
  double value = 0.0;
  const TensorView scalar(value);
  EXPECT_EQ(scalar.shape(), Shape());
  EXPECT_EQ(scalar.elements(), 1);
}

TEST(TensorView, ShapesTakeAnyIntegers) {
  std::vector<float> data(24);
  const std::size_t rows = 4;
  const short columns = 3;
  const TensorView view(data.data(), {rows, columns, 2});
  EXPECT_EQ(view.elements(), 24);
  EXPECT_EQ(view.shape(), (Shape{4, 3, 2}));
  EXPECT_NE(view.shape(), (Shape{3, 4, 2}));
  EXPECT_EQ((Shape{5, 0}).elements(), 0);
}

TEST(Future, ADefaultOneIsNotValid) {
  Future<void> future;
  EXPECT_FALSE(future.valid());
  future = Future<void>();
}

}  // namespace
}  // namespace kolo::internal
