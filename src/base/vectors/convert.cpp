// SPDX-License-Identifier: Apache-2.0
// convert_reals, compiled for several instruction sets.
#include "base/elements.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "base/vectors/convert.cpp"
#include <hwy/foreach_target.h>
// Included after foreach_target.h, which includes this file once for each instruction set.
#include "base/vectors/instruction_set.hpp"
#include "base/vectors/vectors-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace kolo::internal::HWY_NAMESPACE {
#if KOLO_HAVE_VECTORS
namespace {

/// Converts while whole pairs of vectors remain, and returns the number of converted elements.
template <class From, class To>
std::int64_t convert_between(const std::byte* HWY_RESTRICT from, std::int64_t elements,
                             std::byte* HWY_RESTRICT to) {
  const hn::ScalableTag<float> d;
  const auto step = static_cast<std::int64_t>(2 * hn::Lanes(d));
  std::int64_t i = 0;
  for (; i + step <= elements; i += step) {
    hn::Vec<decltype(d)> a;
    hn::Vec<decltype(d)> b;
    From::load_pair(d, from + i * std::int64_t{sizeof(typename From::Element)}, a, b);
    To::store_pair(d, a, b, to + i * std::int64_t{sizeof(typename To::Element)});
  }
  return i;
}

template <class Wide>
std::int64_t widen(DType half, const std::byte* from, std::int64_t elements, std::byte* to) {
  switch (half) {
    case DType::f16: return convert_between<ExactF16Format, Wide>(from, elements, to);
    case DType::bf16: return convert_between<BF16Format, Wide>(from, elements, to);
    default: return 0;
  }
}

template <class Wide>
std::int64_t narrow(DType half, const std::byte* from, std::int64_t elements, std::byte* to) {
  switch (half) {
    case DType::f16: return convert_between<Wide, ExactF16Format>(from, elements, to);
    case DType::bf16: return convert_between<Wide, BF16Format>(from, elements, to);
    default: return 0;
  }
}

}  // namespace

/// Converts the leading elements that fill whole vectors, and returns their number. The caller
/// converts the remaining elements one by one.
std::int64_t convert_vectors(const std::byte* from, DType from_type, std::int64_t elements,
                             std::byte* to, DType to_type) {
  if (from_type == DType::f32) return narrow<PlainFormat<float>>(to_type, from, elements, to);
  if (from_type == DType::f64) return narrow<NarrowF64Format>(to_type, from, elements, to);
  if (to_type == DType::f32) return widen<PlainFormat<float>>(from_type, from, elements, to);
  return widen<NarrowF64Format>(from_type, from, elements, to);
}

#else

std::int64_t convert_vectors(const std::byte*, DType, std::int64_t, std::byte*, DType) { return 0; }

#endif  // KOLO_HAVE_VECTORS
}  // namespace kolo::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kolo::internal {

KOLO_DISPATCH_TABLE(convert_vectors);

void convert_reals(const std::byte* from, DType from_type, std::int64_t elements, std::byte* to,
                   DType to_type) {
  const std::int64_t converted =
      KOLO_DISPATCH(convert_vectors)(from, from_type, elements, to, to_type);
  visit_real(from_type, [&](auto from_element) {
    visit_real(to_type, [&](auto to_element) {
      using From = decltype(from_element);
      using To = decltype(to_element);
      if constexpr (is_half_type<From> != is_half_type<To>)
        for (std::int64_t i = converted; i < elements; ++i)
          store<To>(to, i, rounded<To>(computed(load<From>(from, i))));
    });
  });
}

}  // namespace kolo::internal
#endif
