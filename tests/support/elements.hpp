// SPDX-License-Identifier: Apache-2.0
// Elements of every type, for tests that run with all of them.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <type_traits>

#include "base/elements.hpp"
#include "kolo/tensor.hpp"

namespace kolo::internal {

using Integers = testing::Types<std::uint8_t, std::int8_t, std::uint16_t, std::int16_t,
                                std::uint32_t, std::int32_t, std::uint64_t, std::int64_t>;
using SignedIntegers = testing::Types<std::int8_t, std::int16_t, std::int32_t, std::int64_t>;
using Reals = testing::Types<F16, BF16, float, double>;
using Numbers =
    testing::Types<std::uint8_t, std::int8_t, std::uint16_t, std::int16_t, std::uint32_t,
                   std::int32_t, std::uint64_t, std::int64_t, F16, BF16, float, double>;
using AllTypes =
    testing::Types<std::uint8_t, std::int8_t, std::uint16_t, std::int16_t, std::uint32_t,
                   std::int32_t, std::uint64_t, std::int64_t, F16, BF16, float, double, bool>;

template <typename T>
constexpr DType dtype() {
  if constexpr (std::is_same_v<T, F16>) {
    return DType::f16;
  } else if constexpr (std::is_same_v<T, BF16>) {
    return DType::bf16;
  } else {
    return dtype_of<T>;
  }
}

template <typename T, typename Number>
T make(Number value) {
  if constexpr (is_half_type<T>) {
    return rounded<T>(static_cast<float>(value));
  } else {
    return static_cast<T>(value);
  }
}

template <typename T>
double value_of(T element) {
  return static_cast<double>(computed(element));
}

/// Elements as bytes, for functions that know the type only at run time.
template <typename T>
const std::byte* bytes_of(const T* elements) {
  return reinterpret_cast<const std::byte*>(elements);
}
template <typename T>
std::byte* bytes_of(T* elements) {
  return reinterpret_cast<std::byte*>(elements);
}

}  // namespace kolo::internal
