// SPDX-License-Identifier: Apache-2.0
// The number of enumerators of an enumeration.
#pragma once

#include <cstddef>
#include <type_traits>

#include "kolo/types.hpp"

namespace kolo::internal {

/// The last enumerator of an enumeration whose values are 0, 1, 2 and so on. An internal
/// enumeration declares it as an alias, `last`. A public one has a specialization here; that of
/// DType is in dtype.hpp.
template <typename Enumeration>
inline constexpr Enumeration last_enumerator = Enumeration::last;

template <>
inline constexpr DeviceType last_enumerator<DeviceType> = DeviceType::cuda;
template <>
inline constexpr ReduceOp last_enumerator<ReduceOp> = ReduceOp::adasum;
template <>
inline constexpr Compression last_enumerator<Compression> = Compression::bf16;
template <>
inline constexpr AverageOver last_enumerator<AverageOver> = AverageOver::present;

/// Sizes arrays that an enumeration indexes, and bounds values that come from outside.
template <typename Enumeration>
inline constexpr std::size_t enumerator_count =
    static_cast<std::size_t>(last_enumerator<Enumeration>) + 1;

/// True if `value` is the value of an enumerator.
template <typename Enumeration>
constexpr bool is_enumerator(std::underlying_type_t<Enumeration> value) {
  return value >= 0 && static_cast<std::size_t>(value) < enumerator_count<Enumeration>;
}

}  // namespace kolo::internal
