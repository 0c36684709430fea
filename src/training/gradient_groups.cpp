#include "training/gradient_groups.hpp"

#include <algorithm>

#include "kolo/error.hpp"

namespace kolo::detail {

GroupNumbers listed_groups(
    const std::vector<std::vector<std::string>>& groups,
    const std::function<std::optional<std::string>(const std::string&)>& resolve) {
  GroupNumbers numbers;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const std::string where = "DistributedOptimizer: groups[" + std::to_string(i) + "]";
    if (groups[i].empty()) throw InvalidArgument(where + " has no names");
    for (const std::string& name : groups[i]) {
      const auto known = resolve(name);
      if (!known) throw InvalidArgument(where + ": there is no parameter '" + name + "'", name);
      if (!numbers.emplace(*known, i).second) {
        throw InvalidArgument(where + ": '" + name + "' is in the groups twice", name);
      }
    }
  }
  return numbers;
}

GroupNumbers consecutive_groups(const std::vector<std::string>& names, std::size_t count) {
  GroupNumbers numbers;
  count = std::min(count, names.size());
  for (std::size_t i = 0; i < names.size(); ++i)
    numbers.emplace(names[i], i * count / names.size());
  return numbers;
}

}  // namespace kolo::detail
