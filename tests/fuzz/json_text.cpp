// SPDX-License-Identifier: Apache-2.0
// Names given by users, as flight records and timelines write them: every JSON reader accepts the
// output, and UTF-8 comes back unchanged.
#include "diagnostics/json_text.hpp"

#include <nlohmann/json.hpp>

#include "target.hpp"

namespace kolo::internal::fuzz {
namespace {

bool is_utf8(const std::string& text) {
  try {
    (void)nlohmann::json(text).dump();
    return true;
  } catch (const nlohmann::json::type_error&) {
    return false;
  }
}

/// Accepts text in which nothing has to be replaced.
bool run(Bytes bytes) {
  const std::string text(as_text(bytes));
  const auto read = nlohmann::json::parse(diagnostics::json_string(text));
  require(read.is_string(), "a text that is none in JSON");
  const bool good = is_utf8(text);
  require((read.get<std::string>() == text) == good, "a text is another one in JSON");
  return good;
}

std::vector<Seed> seeds() {
  return {{"plain", "layer1.0.conv1.weight"},
          {"escapes", "\"quoted\" \\ back\\slash\n\t\r\x01\x1f\x7f"},
          {"two",
           "gr\xC3\xB6\xC3\x9F"
           "e"},
          {"three", "\xE2\x82\xAC \xED\x9F\xBF \xEE\x80\x80"},
          {"four", "\xF0\x90\x80\x80 \xF4\x8F\xBF\xBF"}};
}

}  // namespace

const Target json_text_target{.name = "json_text", .max_bytes = 64, .run = run, .seeds = seeds};

}  // namespace kolo::internal::fuzz
