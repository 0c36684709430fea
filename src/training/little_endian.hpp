// Numbers as bytes, least first, on any machine.
#pragma once

#include <concepts>
#include <cstddef>
#include <string>
#include <string_view>

namespace kolo::detail {

template <std::unsigned_integral Integer>
void append_little_endian(std::string& bytes, Integer number) {
  for (std::size_t i = 0; i < sizeof(Integer); ++i) {
    bytes += static_cast<char>((number >> (8 * i)) & 0xFFU);
  }
}

/// `bytes` holds at least as many as the type.
template <std::unsigned_integral Integer>
[[nodiscard]] Integer from_little_endian(std::string_view bytes) {
  Integer number = 0;
  for (std::size_t i = 0; i < sizeof(Integer); ++i) {
    const auto byte = static_cast<unsigned char>(bytes[i]);
    number = static_cast<Integer>(number | static_cast<Integer>(byte) << (8 * i));
  }
  return number;
}

}  // namespace kolo::detail
