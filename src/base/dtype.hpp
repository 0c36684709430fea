// SPDX-License-Identifier: Apache-2.0
// The element types and the properties by which they differ.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/enumerators.hpp"
#include "kolo/types.hpp"

namespace kolo::internal {

enum class NumberKind : std::uint8_t { integer, real, boolean };

/// A switch and no column of `dtype_table`, because code on the GPU cannot read the table: nvcc
/// compiles such a read to a trap, without a warning.
[[nodiscard]] constexpr std::size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::u8:
    case DType::i8:
    case DType::boolean: return 1;
    case DType::u16:
    case DType::i16:
    case DType::f16:
    case DType::bf16: return 2;
    case DType::u32:
    case DType::i32:
    case DType::f32: return 4;
    case DType::u64:
    case DType::i64:
    case DType::f64: return 8;
  }
  return 0;
}
/// `size_of` as a signed number, for arithmetic with element counts.
[[nodiscard]] constexpr std::int64_t signed_size_of(DType dtype) {
  return static_cast<std::int64_t>(size_of(dtype));
}

struct DTypeTraits {
  DType type{};
  NumberKind kind = NumberKind::integer;
  std::string_view name{};              // in messages and files
  std::string_view safetensors_name{};  // in the headers of safetensors files
  bool is_half = false;                 // computed in f32
  bool sums_overflow = false;           // a sum may overflow although the average fits
};

/// The traits of the element types, in the order of the enumerators. For the host only.
inline constexpr auto dtype_table = std::to_array<DTypeTraits>({
    {DType::u8, NumberKind::integer, "u8", "U8"},
    {DType::i8, NumberKind::integer, "i8", "I8"},
    {DType::u16, NumberKind::integer, "u16", "U16"},
    {DType::i16, NumberKind::integer, "i16", "I16"},
    {DType::u32, NumberKind::integer, "u32", "U32"},
    {DType::i32, NumberKind::integer, "i32", "I32"},
    {DType::u64, NumberKind::integer, "u64", "U64"},
    {DType::i64, NumberKind::integer, "i64", "I64"},
    {DType::f16, NumberKind::real, "f16", "F16", /*is_half=*/true, /*sums_overflow=*/true},
    {DType::bf16, NumberKind::real, "bf16", "BF16", /*is_half=*/true},
    {DType::f32, NumberKind::real, "f32", "F32"},
    {DType::f64, NumberKind::real, "f64", "F64"},
    {DType::boolean, NumberKind::boolean, "bool", "BOOL"},
});
inline constexpr DTypeTraits unknown_dtype{.name = "unknown"};

static_assert([] {
  for (std::size_t i = 0; i < dtype_table.size(); ++i)
    if (dtype_table[i].type != static_cast<DType>(i)) return false;
  return size_of(static_cast<DType>(dtype_table.size())) == 0;
}());

template <>
inline constexpr DType last_enumerator<DType> = dtype_table.back().type;

/// `unknown_dtype` for a value that is no enumerator.
[[nodiscard]] constexpr const DTypeTraits& traits_of(DType dtype) {
  const auto index = static_cast<std::size_t>(dtype);
  return index < dtype_table.size() ? dtype_table[index] : unknown_dtype;
}

[[nodiscard]] constexpr bool is_half(DType dtype) { return traits_of(dtype).is_half; }
/// An integer of at most 32 bits.
[[nodiscard]] constexpr bool is_short_integer(DType dtype) {
  return traits_of(dtype).kind == NumberKind::integer && size_of(dtype) <= 4;
}
[[nodiscard]] constexpr bool is_floating(DType dtype) {
  return traits_of(dtype).kind == NumberKind::real;
}

}  // namespace kolo::internal
