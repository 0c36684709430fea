// SPDX-License-Identifier: Apache-2.0
// The arithmetic on one element. The kernel on the GPU (except for conversions) and the reference
// on the CPU share this code, so that both give the same bits.
#pragma once

#include <concepts>
#include <cstdint>
#include <type_traits>

#include "backend/gpu/runtime/transfer.hpp"
#include "base/elements.hpp"
#include "reduction/scaling.hpp"

namespace kolo::internal::backend::gpu {

/// Scaling of numbers of type `Number`, analyzed once for many elements.
template <typename Number>
class Scaled;

template <std::floating_point Real>
class Scaled<Real> {
 public:
  constexpr explicit Scaled(const Scaling& scaling)
      : divides_(scaling.scale == 1.0 && (scaling.divisor & (scaling.divisor - 1)) != 0),
        by_(divides_ ? static_cast<Real>(scaling.divisor)
                     : static_cast<Real>(scaling.scale / static_cast<double>(scaling.divisor))) {}

  /// Needs no test for a factor of one: multiplying by it changes nothing.
  constexpr Real operator()(Real x) const { return divides_ ? x / by_ : x * by_; }

 private:
  bool divides_;
  Real by_;
};

template <std::integral Integer>
class Scaled<Integer> {
 public:
  constexpr explicit Scaled(const Scaling& scaling) : scaling_(scaling) {}

  constexpr Integer operator()(Integer x) const {
    const Integer divided = scaling_.divisor == 1 ? x : reduction::quotient(x, scaling_.divisor);
    if (scaling_.scale == 1.0) return divided;
    return reduction::truncate<Integer>(static_cast<double>(divided) * scaling_.scale);
  }

 private:
  Scaling scaling_;
};

/// A boolean; any byte but 0 is true.
struct Truth {
  std::uint8_t byte;
};

/// The type of the arithmetic is determined by the wider of the two types.
template <typename From, typename To>
using ComputedBetween =
    std::conditional_t<(sizeof(From) > sizeof(To)), Computed<From>, Computed<To>>;

/// Conversions between elements and the numbers used for arithmetic.
struct SoftwareConversion {
  template <typename T>
  static constexpr Computed<T> widen(T element) {
    return computed(element);
  }
  template <typename T, typename Real>
  static constexpr T round(Real value) {
    return rounded<T>(value);
  }
};

template <typename From, typename To, typename Conversion = SoftwareConversion>
class TransferElement {
 public:
  using Number = ComputedBetween<From, To>;

  constexpr explicit TransferElement(const Scaling& scaling) : scaled_(scaling) {}

  constexpr To operator()(From element) const {
    const Number number = scaled_(static_cast<Number>(Conversion::widen(element)));
    if constexpr (std::integral<To>) {
      return number;
    } else {
      return Conversion::template round<To>(number);
    }
  }

 private:
  Scaled<Number> scaled_;
};

template <typename Conversion>
class TransferElement<Truth, Truth, Conversion> {
 public:
  constexpr explicit TransferElement(const Scaling& /*scaling*/) {}
  constexpr Truth operator()(Truth element) const {
    return {static_cast<std::uint8_t>(element.byte != 0)};
  }
};

/// True if the bytes are copied unchanged.
[[nodiscard]] constexpr bool is_copy(const Segment& segment) {
  return segment.from_type == segment.to_type && segment.scaling.none() &&
         segment.from_type != DType::boolean;
}

/// Calls `function.template operator()<From, To>()` for the types of a segment that is not a plain
/// copy. The two types differ only for floating-point numbers, and then one of them is a half type;
/// does nothing for other pairs.
template <typename Function>
constexpr void visit_types(DType from, DType to, Function& function) {
  if (from == DType::boolean) return function.template operator()<Truth, Truth>();
  visit_integer(from, [&](auto element) {
    using Integer = decltype(element);
    function.template operator()<Integer, Integer>();
  });
  visit_real(from, [&](auto from_element) {
    visit_real(to, [&](auto to_element) {
      using From = decltype(from_element);
      using To = decltype(to_element);
      if constexpr (std::is_same_v<From, To> || is_half_type<From> != is_half_type<To>)
        function.template operator()<From, To>();
    });
  });
}

}  // namespace kolo::internal::backend::gpu
