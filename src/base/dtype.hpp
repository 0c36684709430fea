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

struct DTypeTraits {
  DType type{};
  std::size_t bytes = 0;
  NumberKind kind = NumberKind::integer;
  std::string_view name{};              // in messages and files
  std::string_view safetensors_name{};  // in the headers of safetensors files
  bool is_half = false;                 // computed in f32
  bool sums_overflow = false;           // where averages would not
};

/// The traits of the element types, in the order of the enumerators.
inline constexpr auto dtype_table = std::to_array<DTypeTraits>({
    {DType::u8, 1, NumberKind::integer, "u8", "U8"},
    {DType::i8, 1, NumberKind::integer, "i8", "I8"},
    {DType::u16, 2, NumberKind::integer, "u16", "U16"},
    {DType::i16, 2, NumberKind::integer, "i16", "I16"},
    {DType::u32, 4, NumberKind::integer, "u32", "U32"},
    {DType::i32, 4, NumberKind::integer, "i32", "I32"},
    {DType::u64, 8, NumberKind::integer, "u64", "U64"},
    {DType::i64, 8, NumberKind::integer, "i64", "I64"},
    {DType::f16, 2, NumberKind::real, "f16", "F16", /*is_half=*/true, /*sums_overflow=*/true},
    {DType::bf16, 2, NumberKind::real, "bf16", "BF16", /*is_half=*/true},
    {DType::f32, 4, NumberKind::real, "f32", "F32"},
    {DType::f64, 8, NumberKind::real, "f64", "F64"},
    {DType::boolean, 1, NumberKind::boolean, "bool", "BOOL"},
});

static_assert([] {
  for (std::size_t i = 0; i < dtype_table.size(); ++i)
    if (dtype_table[i].type != static_cast<DType>(i)) return false;
  return true;
}());

template <>
inline constexpr DType last_enumerator<DType> = dtype_table.back().type;

[[nodiscard]] constexpr const DTypeTraits& traits_of(DType dtype) {
  return dtype_table[static_cast<std::size_t>(dtype)];
}

[[nodiscard]] constexpr std::size_t size_of(DType dtype) { return traits_of(dtype).bytes; }
/// `size_of` as a signed number, for arithmetic with element counts.
[[nodiscard]] constexpr std::int64_t signed_size_of(DType dtype) {
  return static_cast<std::int64_t>(size_of(dtype));
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
