// How two elements become one.
#pragma once

#include <concepts>
#include <cstdint>
#include <type_traits>

namespace kolo::reduction {

/// Unsigned, so that overflow wraps, and wide enough not to be promoted to int.
template <std::integral T>
using Wrapping = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;

struct Sum {
  template <typename T>
  T operator()(T a, T b) const {
    if constexpr (std::integral<T>) {
      return static_cast<T>(static_cast<Wrapping<T>>(a) + static_cast<Wrapping<T>>(b));
    } else {
      return a + b;
    }
  }
};

struct Product {
  template <typename T>
  T operator()(T a, T b) const {
    if constexpr (std::integral<T>) {
      return static_cast<T>(static_cast<Wrapping<T>>(a) * static_cast<Wrapping<T>>(b));
    } else {
      return a * b;
    }
  }
};

// A comparison with NaN is false: then `b` is taken, unless it is `a` that is NaN.
struct Min {
  template <typename T>
  T operator()(T a, T b) const {
    if constexpr (std::integral<T>) {
      return a < b ? a : b;
    } else {
      return ((a < b) | (a != a)) ? a : b;
    }
  }
};

struct Max {
  template <typename T>
  T operator()(T a, T b) const {
    if constexpr (std::integral<T>) {
      return a > b ? a : b;
    } else {
      return ((a > b) | (a != a)) ? a : b;
    }
  }
};

}  // namespace kolo::reduction
