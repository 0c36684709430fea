// SPDX-License-Identifier: Apache-2.0
// The report of a rank on its own start-up, and the errors that all ranks derive from the reports.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kolo::internal::session {

/// Strings of a fixed size end with a zero or with their room; what has no room is cut off.
void write_string(std::string_view text, std::span<char> into);
[[nodiscard]] std::string read_string(std::span<const char> from);

/// The same bytes in every version, so that versions recognize each other.
struct StartupReport {
  std::array<char, 32> version{};
  std::array<char, 480> problem{};  // empty: none

  [[nodiscard]] static StartupReport make(std::string_view version, std::string_view problem);
  [[nodiscard]] bool has_problem() const { return problem.front() != '\0'; }
};

/// Ranks that one rank has no connection with, or has heard nothing from. Those beyond the room are
/// left out.
struct MissingRanks {
  static constexpr std::size_t max_count = 64;

  std::uint32_t count = 0;
  std::array<std::int32_t, max_count> ranks{};

  [[nodiscard]] static MissingRanks of(std::span<const int> ranks);
};

/// The same on all ranks. Empty if no rank has a problem.
struct StartupErrors {
  std::vector<int> ranks{};
  std::string text{};  // names the ranks
};

/// `reports` by rank, at least one: all that have a problem or run another version than rank 0.
[[nodiscard]] StartupErrors collect_errors(std::span<const StartupReport> reports);

/// Who is to blame for connections that are missing, as both of their ends may report. `missing`:
/// by rank. If two ranks miss each other, reports of one side alone are left out: these ranks only
/// wait for such a pair. Then, again and again, the rank that is missed most is blamed, the highest
/// of several, and its connections count no more. The highest is the newest of an elastic job.
[[nodiscard]] std::vector<int> find_unreachable(std::span<const MissingRanks> missing);

/// Blames the unreachable ranks; the text has all reports. Where no rank is missing, as
/// `collect_errors`.
[[nodiscard]] StartupErrors collect_errors(std::span<const StartupReport> reports,
                                           std::span<const MissingRanks> missing);

/// Throws InvalidArgument if there are any.
void throw_if_any(const StartupErrors& errors);

}  // namespace kolo::internal::session
