// SPDX-License-Identifier: Apache-2.0
#include "training/optimizer/submitted_operations.hpp"

#include <cstddef>
#include <span>
#include <string_view>

namespace kolo::internal {

void SubmittedOperations::gather(const std::string& operation,
                                 const std::vector<std::string>& names, const ProcessSet& set) {
  text_.assign(1, '\0');  // an empty name, so that only ranks that have joined send nothing
  for (const std::string& name : names) text_.append(name).push_back('\0');
  future_ = allgather_async(std::span(text_), {.name = operation, .process_set = set});
  gathering_ = true;
}

std::map<std::string, std::vector<int>> SubmittedOperations::take_partial(const ProcessSet& set) {
  gathering_ = false;
  const Gathered<char> all = future_.get();
  const std::vector<int> members = set.ranks();
  std::map<std::string, std::vector<int>> holders;
  std::string_view rest(all.values.data(), all.values.size());
  for (std::size_t i = 0; i < members.size(); ++i) {
    std::string_view theirs = rest.substr(0, static_cast<std::size_t>(all.counts[i]));
    rest.remove_prefix(theirs.size());
    for (; !theirs.empty(); theirs.remove_prefix(theirs.find('\0') + 1))
      holders[std::string(theirs.substr(0, theirs.find('\0')))].push_back(members[i]);
  }
  const std::size_t present = holders[{}].size();
  std::erase_if(holders, [present](const auto& one) { return one.second.size() == present; });
  return holders;
}

}  // namespace kolo::internal
