// SPDX-License-Identifier: Apache-2.0
// The ranks' reports on their own start-up, the errors that all ranks derive from them, and helpers
// with which starting ranks exchange records.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/failure.hpp"
#include "kolo/error.hpp"
#include "kolo/version.hpp"
#include "rendezvous/rendezvous.hpp"

namespace kolo::internal::session {

/// Writes a string into an array of fixed size: cut off to fit, and zero-terminated.
void write_string(std::string_view text, std::span<char> into);
[[nodiscard]] std::string read_string(std::span<const char> from);

/// A rank's report on its own start-up. The layout is the same in every version, so that ranks of
/// different versions recognize each other.
struct StartupReport {
  std::array<char, 32> version{};
  std::array<char, 480> problem{};  // empty: none

  [[nodiscard]] static StartupReport make(std::string_view version, std::string_view problem);
  [[nodiscard]] bool has_problem() const { return problem.front() != '\0'; }
};

/// The ranks that one rank has no connection to, or has heard nothing from. Ranks beyond
/// `max_count` are left out.
struct MissingRanks {
  static constexpr std::size_t max_count = 64;

  std::uint32_t count = 0;
  std::array<std::int32_t, max_count> ranks{};

  [[nodiscard]] static MissingRanks of(std::span<const int> ranks);
};

/// The errors of all ranks, the same on each of them. Empty if no rank has a problem.
struct StartupErrors {
  std::vector<int> ranks{};
  std::string text{};  // the problems, each with its ranks
};

/// The errors of the ranks that have a problem or run another version than rank 0. `reports`: by
/// rank, not empty.
[[nodiscard]] StartupErrors collect_errors(std::span<const StartupReport> reports);

/// The ranks to blame for missing connections. `missing`: by rank; either end of a connection may
/// report it. If some pairs of ranks miss each other, reports from only one side are ignored: their
/// ranks only waited for a rank of such a pair. The search is greedy: it blames the rank with the
/// most missing connections, removes these, and repeats. Ties go to the highest rank, which is the
/// newest one of an elastic job.
[[nodiscard]] std::vector<int> find_unreachable(std::span<const MissingRanks> missing);

/// The same, but if ranks are unreachable, `ranks` lists only these. The text has all reports.
[[nodiscard]] StartupErrors collect_errors(std::span<const StartupReport> reports,
                                           std::span<const MissingRanks> missing);

/// Throws InvalidArgument if there are errors.
void throw_if_any(const StartupErrors& errors);

/// Runs `work` and stores the message of an exception in `problem`, unless it already holds one.
/// Start-up must not throw on one rank alone, because the others would wait for that rank in their
/// next collective call.
template <typename Work>
void attempt(std::string& problem, Work work) {
  try {
    work();
  } catch (...) {
    if (problem.empty()) problem = message_of_current_exception();
  }
}

/// The same; also stores the ranks that the error names in `missing`.
template <typename Work>
void attempt(std::string& problem, MissingRanks& missing, Work work) {
  attempt(problem, [&] {
    try {
      work();
    } catch (const Error& error) {
      missing = MissingRanks::of(error.ranks());
      throw;
    }
  });
}

/// Exchanges one record from each rank. Collective.
template <typename Record>
std::vector<Record> gather(rendezvous::Rendezvous& world, const Record& mine) {
  std::vector<Record> all;
  for (const rendezvous::Bytes& bytes : world.gather_all(std::as_bytes(std::span(&mine, 1)))) {
    if (bytes.size() != sizeof mine)
      throw BackendError("a rank has sent a record of another size than this one's");
    std::memcpy(&all.emplace_back(), bytes.data(), sizeof mine);
  }
  return all;
}

/// Throws InvalidArgument on every rank if any rank has a problem. Collective.
inline void check_all_ranks(rendezvous::Rendezvous& world, const std::string& problem) {
  throw_if_any(collect_errors(gather(world, StartupReport::make(version, problem))));
}

}  // namespace kolo::internal::session
