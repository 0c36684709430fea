// SPDX-License-Identifier: Apache-2.0
#include "training/checkpoint/strict_json.hpp"

#include <fmt/format.h>

#include <set>
#include <vector>

namespace kolo::internal {

using nlohmann::json;

// The library's parser would keep the last of two members of the same name, and nest without
// limit, so a callback checks both.
json parse_strict_json(std::string_view text) {
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

std::string shown(std::string_view text) {
  constexpr std::size_t most = 120;
  return text.size() <= most ? std::string(text) : std::string(text.substr(0, most)) + "...";
}

}  // namespace kolo::internal
