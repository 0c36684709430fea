// SPDX-License-Identifier: Apache-2.0
#include "training/checkpoint/safetensors_names.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "kolo/error.hpp"

namespace kolo::internal {
namespace {

// "'a', 'b' and 7 more"
std::string list_names(const std::vector<std::string>& names) {
  constexpr std::size_t most = 5;
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), most); ++i)
    text += fmt::format("{}'{}'", i == 0 ? "" : ", ", names[i]);
  if (names.size() > most) text += fmt::format(" and {} more", names.size() - most);
  return text;
}

void require_none(const std::string& where, const UnmatchedNames& unmatched,
                  const SafetensorsOptions& options) {
  if (unmatched.missing.empty() && unmatched.unexpected.empty()) return;
  std::string message = where + ": the names of tensors differ.";
  if (!unmatched.missing.empty())
    message +=
        fmt::format(" Missing in the {}: {}.", holder_of(where), list_names(unmatched.missing));
  if (!unmatched.unexpected.empty())
    message += fmt::format(" Unexpected in the {}: {}.", holder_of(where),
                           list_names(unmatched.unexpected));
  if (!options.prefix.empty()) message += fmt::format(" The prefix is '{}'.", options.prefix);
  throw InvalidArgument(message + " Set SafetensorsOptions::strict = false to load the others.");
}

}  // namespace

MatchedNames match_names(const std::string& where, const std::vector<std::string>& wanted,
                         const std::vector<std::string>& in_file,
                         const SafetensorsOptions& options) {
  MatchedNames matched;
  std::set<std::string> open(wanted.begin(), wanted.end());
  for (const std::string& found : in_file) {
    if (!found.starts_with(options.prefix)) continue;
    const std::string name = found.substr(options.prefix.size());
    if (open.erase(name) != 0) {
      matched.pairs.emplace_back(name, found);
    } else {
      matched.unmatched.unexpected.push_back(name);
    }
  }
  for (const std::string& name : wanted)
    if (open.contains(name)) matched.unmatched.missing.push_back(name);
  if (options.strict) require_none(where, matched.unmatched, options);
  return matched;
}

}  // namespace kolo::internal
