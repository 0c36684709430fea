// SPDX-License-Identifier: Apache-2.0
// A strict parser for JSON from files that may be damaged or hostile.
#pragma once

#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <string_view>

namespace kolo::internal {

/// Thrown for invalid JSON. The message continues a sentence whose subject is the text: "has two
/// members named 'a'".
class JsonFault : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Throws JsonFault for text that is not JSON, for two members of the same name in an object, and
/// for more than four levels.
[[nodiscard]] nlohmann::json parse_strict_json(std::string_view text);

/// Shortens a text from a file for a message: returns only the start of a long text.
[[nodiscard]] std::string shown(std::string_view text);

}  // namespace kolo::internal
