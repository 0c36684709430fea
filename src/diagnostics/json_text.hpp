// SPDX-License-Identifier: Apache-2.0
// Text as a JSON string.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <iterator>
#include <string>
#include <string_view>

namespace kolo::internal::diagnostics {

inline unsigned byte_at(std::string_view text, std::size_t place) {
  return place < text.size() ? static_cast<unsigned char>(text[place]) : 0U;
}

/// The length of the valid UTF-8 character at `place`; 0 if there is none.
inline std::size_t character_at(std::string_view text, std::size_t place) {
  const unsigned first = byte_at(text, place);
  if (first < 0x80) return 1;
  const std::size_t length = first < 0xC2 ? 0 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  if (length == 0 || first > 0xF4) return 0;
  for (std::size_t i = 1; i < length; ++i)
    if ((byte_at(text, place + i) & 0xC0) != 0x80) return 0;
  // Other overlong forms, surrogates and code points above U+10FFFF show in the second byte.
  const unsigned second = byte_at(text, place + 1);
  const bool overlong = (first == 0xE0 && second < 0xA0) || (first == 0xF0 && second < 0x90);
  const bool outside = (first == 0xED && second > 0x9F) || (first == 0xF4 && second > 0x8F);
  return overlong || outside ? 0 : length;
}

[[nodiscard]] inline bool is_utf8(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t length = character_at(text, i);
    if (length == 0) return false;
    i += length;
  }
  return true;
}

/// `text` in quotation marks, escaped. Bytes that are not UTF-8 become U+FFFD, so that every reader
/// accepts the result.
[[nodiscard]] inline std::string json_string(std::string_view text) {
  fmt::memory_buffer out;
  const auto append = [&](std::string_view part) {
    out.append(part.data(), part.data() + part.size());
  };
  out.push_back('"');
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t length = character_at(text, i);
    const char c = text[i];
    if (length == 0) {
      append("\xEF\xBF\xBD");
    } else if (c == '"' || c == '\\') {
      out.push_back('\\');
      out.push_back(c);
    } else if (c == '\n') {
      append("\\n");
    } else if (byte_at(text, i) < 0x20) {
      fmt::format_to(std::back_inserter(out), "\\u{:04x}", byte_at(text, i));
    } else {
      append(text.substr(i, length));
    }
    i += length == 0 ? 1 : length;
  }
  out.push_back('"');
  return fmt::to_string(out);
}

}  // namespace kolo::internal::diagnostics
