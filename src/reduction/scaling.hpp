// SPDX-License-Identifier: Apache-2.0
// Multiplication and division of elements, before and after they are combined.
#pragma once

#include <bit>
#include <concepts>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace kolo::internal::reduction {

/// `value` truncated toward zero. A value out of range becomes the nearest in range, NaN becomes 0.
template <std::integral T>
[[nodiscard]] constexpr T truncate(double value) {
  constexpr auto lowest = static_cast<double>(std::numeric_limits<T>::min());
  // The first value above the range: a power of two, so that it is exact.
  constexpr double above = 2.0 * static_cast<double>(std::numeric_limits<T>::max() / 2 + 1);
  if (value <= lowest) return std::numeric_limits<T>::min();
  if (value >= above) return std::numeric_limits<T>::max();
  return value == value ? static_cast<T>(value) : T{0};
}

struct Unchanged {
  template <typename T>
  T operator()(T x) const {
    return x;
  }
};

/// Calls `consumer` with a function that multiplies by `factor`.
template <typename T, typename Consumer>
void with_factor(double factor, Consumer consumer) {
  if (factor == 1.0) {
    consumer(Unchanged{});
  } else if constexpr (std::integral<T>) {
    consumer([=](T x) { return truncate<T>(static_cast<double>(x) * factor); });
  } else {
    consumer([real = static_cast<T>(factor)](T x) { return x * real; });
  }
}

/// The last step of a reduction of real numbers. Without a scale it divides, so that the average of
/// equal values is exactly that value. If the divisor is a power of two, multiplication gives the
/// same bits faster.
template <std::floating_point Real>
struct RealScaling {
  enum class Kind : std::uint8_t { none, multiply, divide };

  RealScaling(std::int64_t divisor, double scale) {
    if (scale == 1.0 && divisor == 1) return;
    if (scale == 1.0 && !std::has_single_bit(static_cast<std::uint64_t>(divisor))) {
      kind = Kind::divide;
      by = static_cast<Real>(divisor);
    } else {
      kind = Kind::multiply;
      by = static_cast<Real>(scale / static_cast<double>(divisor));
    }
  }

  Kind kind = Kind::none;
  Real by = 1;
};

/// Calls `consumer` with the function for the last step of a reduction.
template <std::floating_point Real, typename Consumer>
void with_scaling(std::int64_t divisor, double scale, Consumer consumer) {
  using Kind = typename RealScaling<Real>::Kind;
  const RealScaling<Real> scaling(divisor, scale);
  switch (scaling.kind) {
    case Kind::none: return consumer(Unchanged{});
    case Kind::multiply: return consumer([by = scaling.by](Real x) { return x * by; });
    case Kind::divide: return consumer([by = scaling.by](Real x) { return x / by; });
  }
}

/// `value / divisor`, truncated toward zero. For types of up to 32 bits, a quotient in double
/// truncates to the same integer, and unlike an integer division it vectorizes.
template <std::integral T>
[[nodiscard]] constexpr T quotient(T value, std::int64_t divisor) {
  if constexpr (sizeof(T) == sizeof divisor) {
    return value / static_cast<T>(divisor);
  } else {
    return truncate<T>(static_cast<double>(value) / static_cast<double>(divisor));
  }
}

template <std::integral T, typename Consumer>
void with_scaling(std::int64_t divisor, double scale, Consumer consumer) {
  if (scale == 1.0 && divisor == 1) {
    consumer(Unchanged{});
  } else if (scale == 1.0) {
    consumer([=](T x) { return quotient(x, divisor); });
  } else if (divisor == 1) {
    consumer([=](T x) { return truncate<T>(static_cast<double>(x) * scale); });
  } else {
    consumer([=](T x) { return truncate<T>(static_cast<double>(quotient(x, divisor)) * scale); });
  }
}

}  // namespace kolo::internal::reduction
