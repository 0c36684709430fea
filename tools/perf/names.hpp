// SPDX-License-Identifier: Apache-2.0
// Values and their names on the command line and in reports.
#pragma once

#include <array>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace perf {

/// An invalid command line, or an invalid file that it names.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

template <typename T, std::size_t size>
using Names = std::array<std::pair<T, std::string_view>, size>;

/// The value named `text`. Throws UsageError, which lists the valid names.
template <typename T, std::size_t size>
[[nodiscard]] T find_value(const Names<T, size>& names, std::string_view flag,
                           std::string_view text) {
  std::string all;
  for (const auto& [value, name] : names) {
    if (name == text) return value;
    all += (all.empty() ? "" : ", ") + std::string(name);
  }
  throw UsageError(std::string(flag) + ": '" + std::string(text) + "' is none of " + all);
}

template <typename T, std::size_t size>
[[nodiscard]] std::string_view find_name(const Names<T, size>& names, T wanted) {
  for (const auto& [value, name] : names)
    if (value == wanted) return name;
  throw std::logic_error("a value without a name");
}

template <typename T, std::size_t size>
[[nodiscard]] std::string join_names(const Names<T, size>& names) {
  std::string all;
  for (const auto& [value, name] : names) all += (all.empty() ? "" : ", ") + std::string(name);
  return all;
}

}  // namespace perf
