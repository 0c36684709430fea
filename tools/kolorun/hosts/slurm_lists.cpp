// SPDX-License-Identifier: Apache-2.0
#include "slurm_lists.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cstddef>
#include <optional>

#include "kolorun/options.hpp"

namespace kolorun {
namespace {

// More than any cluster has; a longer list is a mistake that would exhaust memory.
constexpr std::size_t max_nodes = rendezvous::max_ranks;
// More digits do not fit into an int.
constexpr std::size_t max_digits = 9;

std::optional<int> parse_count(std::string_view text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool is_number = error == std::errc() && end == text.data() + text.size() &&
                         text.size() <= max_digits && text.front() != '-';
  return is_number ? std::optional(number) : std::nullopt;
}

/// The list without its part before the first comma that is not in brackets; returns that part.
std::string_view take_part(std::string_view& list) {
  std::size_t end = 0;
  for (bool within = false; end < list.size() && (within || list[end] != ','); ++end)
    within = list[end] == '[' || (within && list[end] != ']');
  const std::string_view part = list.substr(0, end);
  list.remove_prefix(end < list.size() ? end + 1 : end);
  return part;
}

/// The numbers in "08-10,15". Returns none if the text is something else.
std::optional<std::vector<std::string>> parse_ranges(std::string_view ranges) {
  std::vector<std::string> numbers;
  do {
    const std::string_view range = take_part(ranges);
    const std::size_t dash = range.find('-');
    const std::string_view low = range.substr(0, dash);
    const std::string_view high = dash == std::string_view::npos ? low : range.substr(dash + 1);
    const std::optional<int> first = parse_count(low);
    const std::optional<int> last = parse_count(high);
    if (!first || !last || *last < *first || static_cast<std::size_t>(*last - *first) >= max_nodes)
      return std::nullopt;
    for (int number = *first; number <= *last; ++number)
      numbers.push_back(fmt::format("{:0{}}", number, low.size()));
    if (numbers.size() > max_nodes) return std::nullopt;
  } while (!ranges.empty());
  return numbers;
}

/// Adds the names of "n[1-2]-ib", each after `before`. Returns false if it is no such pattern.
bool expand(const std::string& before, std::string_view pattern, std::vector<std::string>& names) {
  const std::size_t open = pattern.find_first_of("[]");
  if (open == std::string_view::npos) {
    names.push_back(before + std::string(pattern));
    return names.size() <= max_nodes;
  }
  const std::size_t close = pattern.find(']', open);
  if (pattern[open] == ']' || close == std::string_view::npos) return false;
  const auto numbers = parse_ranges(pattern.substr(open + 1, close - open - 1));
  if (!numbers) return false;
  const std::string start = before + std::string(pattern.substr(0, open));
  for (const std::string& number : *numbers)
    if (!expand(start + number, pattern.substr(close + 1), names)) return false;
  return true;
}

}  // namespace

std::vector<std::string> expand_nodes(std::string_view list) {
  std::vector<std::string> names;
  for (std::string_view rest = list; !rest.empty();) {
    const std::string_view part = take_part(rest);
    if (part.empty() || !expand("", part, names))
      throw UsageError(fmt::format("'{}' is not a list of Slurm's nodes", list));
  }
  return names;
}

std::vector<int> expand_counts(std::string_view list) {
  std::vector<int> counts;
  for (std::string_view rest = list; !rest.empty();) {
    const std::string_view part = take_part(rest);
    const std::size_t times_at = part.find("(x");
    const std::optional<int> count = parse_count(part.substr(0, times_at));
    std::optional<int> times = 1;
    if (times_at != std::string_view::npos)
      times = part.ends_with(')')
                  ? parse_count(part.substr(times_at + 2, part.size() - times_at - 3))
                  : std::nullopt;
    if (!count || !times || static_cast<std::size_t>(*times) > max_nodes ||
        counts.size() > max_nodes)
      throw UsageError(fmt::format("'{}' is not a list of Slurm's numbers", list));
    counts.insert(counts.end(), static_cast<std::size_t>(*times), *count);
  }
  return counts;
}

}  // namespace kolorun
