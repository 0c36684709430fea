// Numbers as bytes, the least significant first.
#pragma once

#include <concepts>
#include <cstddef>
#include <string>
#include <string_view>

namespace tfrecord {

template <std::unsigned_integral T>
[[nodiscard]] T from_little_endian(std::string_view bytes) {
  T value = 0;
  for (std::size_t i = sizeof(T); i-- > 0;) {
    value = static_cast<T>(value << 8 | static_cast<unsigned char>(bytes[i]));
  }
  return value;
}

template <std::unsigned_integral T>
[[nodiscard]] std::string to_little_endian(T value) {
  std::string bytes(sizeof(T), '\0');
  for (std::size_t i = 0; i < sizeof(T); ++i) bytes[i] = static_cast<char>(value >> 8 * i & 0xFF);
  return bytes;
}

}  // namespace tfrecord
