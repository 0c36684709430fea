// SPDX-License-Identifier: Apache-2.0
#include "elements.hpp"

#include <bit>
#include <cstring>

namespace perf {
namespace {

template <typename T>
void store(T value, std::byte* element) {
  std::memcpy(element, &value, sizeof(T));
}

/// Exact, because an integer up to 2048 fits binary16's mantissa and is zero or a normal number.
std::uint16_t f16_bits(std::int64_t value) {
  if (value == 0) return 0;
  const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(value));
  return static_cast<std::uint16_t>((bits >> 13U) - ((127U - 15U) << 10U));
}

std::uint16_t bf16_bits(std::int64_t value) {
  return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(static_cast<float>(value)) >> 16U);
}

}  // namespace

std::int64_t size_of(kolo::DType dtype) {
  using enum kolo::DType;
  switch (dtype) {
    case u8:
    case i8:
    case boolean: return 1;
    case u16:
    case i16:
    case f16:
    case bf16: return 2;
    case u32:
    case i32:
    case f32: return 4;
    case u64:
    case i64:
    case f64: return 8;
  }
  throw std::logic_error("a dtype without a size");
}

std::int64_t exact_limit(kolo::DType dtype) {
  using enum kolo::DType;
  switch (dtype) {
    case boolean: return 1;
    case i8: return 127;
    case u8: return 255;
    case bf16: return 256;
    case f16: return 2048;
    case i16: return 32767;
    case u16: return 65535;
    default: return std::int64_t{1} << 24U;
  }
}

void encode(kolo::DType dtype, std::int64_t value, std::byte* element) {
  using enum kolo::DType;
  switch (dtype) {
    case u8:
    case i8:
    case boolean: return store(static_cast<std::uint8_t>(value), element);
    case u16:
    case i16: return store(static_cast<std::uint16_t>(value), element);
    case f16: return store(f16_bits(value), element);
    case bf16: return store(bf16_bits(value), element);
    case u32:
    case i32: return store(static_cast<std::uint32_t>(value), element);
    case f32: return store(static_cast<float>(value), element);
    case u64:
    case i64: return store(static_cast<std::uint64_t>(value), element);
    case f64: return store(static_cast<double>(value), element);
  }
}

}  // namespace perf
