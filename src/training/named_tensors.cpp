#include "training/named_tensors.hpp"

#include <fmt/format.h>

#include <unordered_set>

#include "base/format.hpp"
#include "kolo/error.hpp"

namespace kolo::detail {

std::vector<Item> items_of(const std::vector<NamedTensor>& tensors, const std::string& subject) {
  std::unordered_set<std::string> seen;
  std::vector<Item> items;
  for (const auto& [name, tensor] : tensors) {
    if (name.empty()) throw InvalidArgument(subject + ": a tensor has no name");
    if (!seen.insert(name).second)
      throw InvalidArgument(fmt::format("{}: two tensors are named '{}'", subject, name), name);
    items.push_back(
        {name, fmt::format("{} {}", to_string(tensor.dtype()), to_string(tensor.shape()))});
  }
  return items;
}

}  // namespace kolo::detail
