// SPDX-License-Identifier: Apache-2.0
// The number of enumerators of an enumeration, counted by the compiler.
#pragma once

#include <cstddef>
#include <string_view>
#include <type_traits>
#include <utility>

namespace kolo::internal {

namespace enumerators_detail {

// The compiler spells a value that has a name as `Type::name`, any other as `(Type)7`.
template <auto value>
constexpr bool has_name() {
  const std::string_view function = __PRETTY_FUNCTION__;
  return function[function.find("value = ") + sizeof("value = ") - 1] != '(';
}

template <typename Enumeration, std::size_t... values>
constexpr std::size_t count(std::index_sequence<values...> /*candidates*/) {
  std::size_t named = 0;
  (void)((has_name<static_cast<Enumeration>(values)>() && (++named, true)) && ...);
  return named;
}

}  // namespace enumerators_detail

/// The number of enumerators of an enumeration whose values are 0, 1, 2 and so on, at most 64. It
/// sizes arrays that an enumeration indexes, and bounds values that come from outside.
template <typename Enumeration>
inline constexpr std::size_t enumerator_count = [] {
  static_assert(std::is_enum_v<Enumeration>);
  constexpr std::size_t count =
      enumerators_detail::count<Enumeration>(std::make_index_sequence<65>{});
  static_assert(count <= 64, "too many enumerators to count");
  return count;
}();

/// True if `value` is the value of an enumerator.
template <typename Enumeration>
constexpr bool is_enumerator(std::underlying_type_t<Enumeration> value) {
  return value >= 0 && static_cast<std::size_t>(value) < enumerator_count<Enumeration>;
}

}  // namespace kolo::internal
