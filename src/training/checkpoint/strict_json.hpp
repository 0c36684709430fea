// SPDX-License-Identifier: Apache-2.0
// JSON from files that anyone may have written.
#pragma once

#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <string_view>

namespace kolo::internal {

/// The message follows a subject: "has two members named 'a'".
class JsonFault : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Throws JsonFault for text that is not JSON, for two members of the same name in an object, and
/// for more than four levels.
[[nodiscard]] nlohmann::json parse_strict_json(std::string_view text);

/// A text from a file for a message: its start if it is long.
[[nodiscard]] std::string shown(std::string_view text);

}  // namespace kolo::internal
