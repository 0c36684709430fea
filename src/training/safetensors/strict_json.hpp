// SPDX-License-Identifier: Apache-2.0
// A strict parser for JSON from files that may be damaged or hostile.
#pragma once

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace kolo::internal {

/// Thrown for invalid JSON. The message continues a sentence whose subject is the text: "has two
/// members named 'a'".
class JsonFault : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Shortens a text from a file for a message: returns only the start of a long text.
[[nodiscard]] inline std::string shown(std::string_view text) {
  constexpr std::size_t max_shown = 120;
  return text.size() <= max_shown ? std::string(text)
                                  : std::string(text.substr(0, max_shown)) + "...";
}

/// Throws JsonFault for text that is not JSON, for two members of the same name in an object, and
/// for more than four levels.
[[nodiscard]] inline nlohmann::json parse_strict_json(std::string_view text) {
  using nlohmann::json;
  // The library's parser would keep the last of two members of the same name, and nest without
  // limit, so a callback checks both.
  constexpr int max_depth = 4;
  std::vector<std::set<std::string>> names;
  const auto check = [&](int depth, json::parse_event_t event, json& parsed) {
    if (depth > max_depth) throw JsonFault("is nested too deeply");
    if (event == json::parse_event_t::object_start) names.emplace_back();
    if (event == json::parse_event_t::object_end) names.pop_back();
    if (event == json::parse_event_t::key) {
      const auto& name = parsed.get_ref<const std::string&>();
      if (!names.back().insert(name).second)
        throw JsonFault(fmt::format("has two members named '{}'", shown(name)));
    }
    return true;
  };
  try {
    return json::parse(text, check);
  } catch (const json::exception& error) {
    throw JsonFault(fmt::format("is not JSON ({})", shown(error.what())));
  }
}

}  // namespace kolo::internal
