// SPDX-License-Identifier: Apache-2.0
#include "sizes.hpp"

#include <charconv>
#include <string>

#include "names.hpp"

namespace perf {
namespace {

constexpr std::int64_t max_size = std::int64_t{1} << 40U;

/// The number of bytes of a unit; 0 for an unknown suffix.
std::int64_t unit_of(std::string_view suffix) {
  if (suffix.empty() || suffix == "B") return 1;
  const std::string_view rest = suffix.substr(1);
  if (!rest.empty() && rest != "B" && rest != "iB") return 0;
  switch (suffix[0]) {
    case 'k':
    case 'K': return std::int64_t{1} << 10U;
    case 'm':
    case 'M': return std::int64_t{1} << 20U;
    case 'g':
    case 'G': return std::int64_t{1} << 30U;
    default: return 0;
  }
}

}  // namespace

std::int64_t parse_bytes(std::string_view flag, std::string_view text) {
  std::int64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, number);
  const std::int64_t unit =
      error == std::errc{} ? unit_of({stopped, static_cast<std::size_t>(end - stopped)}) : 0;
  if (unit == 0 || number <= 0 || number > max_size / unit)
    throw UsageError(std::string(flag) + ": '" + std::string(text) +
                     "' is not a size such as 4, 64K or 1M, up to 1024G");
  return number * unit;
}

std::vector<std::int64_t> geometric_sizes(std::int64_t smallest, std::int64_t largest,
                                          std::int64_t factor) {
  if (smallest > largest) throw UsageError("--min-size is larger than --max-size");
  if (factor < 2) throw UsageError("--factor must be 2 or more");
  std::vector<std::int64_t> sizes;
  for (std::int64_t size = smallest;; size *= factor) {
    sizes.push_back(size);
    if (size > largest / factor) return sizes;
  }
}

}  // namespace perf
