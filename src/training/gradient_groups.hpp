// Which parameters' gradients are reduced as one operation.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "kolo/export.hpp"  // kolo::torch, another library, uses what is marked

namespace kolo::detail {

/// A parameter's name and the number of its group. Those in no group are not there.
using GroupNumbers = std::unordered_map<std::string, std::size_t>;

/// As the user listed them. `resolve` gives the name that counts for a parameter that has several,
/// nothing for an unknown name. Throws InvalidArgument for an unknown name, one that occurs twice,
/// and a group without names.
[[nodiscard]] KOLO_EXPORT GroupNumbers
listed_groups(const std::vector<std::vector<std::string>>& groups,
              const std::function<std::optional<std::string>(const std::string&)>& resolve);

/// `count` groups of consecutive names, which differ in length by at most one; of fewer names, as
/// many groups as names.
[[nodiscard]] KOLO_EXPORT GroupNumbers consecutive_groups(const std::vector<std::string>& names,
                                                          std::size_t count);

}  // namespace kolo::detail
