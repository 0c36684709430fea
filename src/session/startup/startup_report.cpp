// SPDX-License-Identifier: Apache-2.0
#include "session/startup/startup_report.hpp"

#include <algorithm>
#include <cstddef>

#include "base/rank_set.hpp"
#include "kolo/error.hpp"

namespace kolo::internal::session {
namespace {

/// Ranks that report the same problem.
struct SharedProblem {
  RankSet ranks;
  std::string text;
};

std::string prefix_of(const RankSet& ranks) {
  return (ranks.count() == 1 ? "rank " : "ranks ") + to_string(ranks) + ": ";
}

/// Of one rank; empty if it has none. Another version's problem may have another
/// meaning, so the version is reported instead.
std::string problem_of(const StartupReport& report, const StartupReport& first) {
  if (report.version != first.version)
    return "runs Kolo " + read_string(report.version) + ", rank 0 runs " +
           read_string(first.version);
  return read_string(report.problem);
}

}  // namespace

void write_string(std::string_view text, std::span<char> into) {
  std::ranges::fill(into, '\0');
  text.copy(into.data(), std::min(text.size(), into.size() - 1));
}

std::string read_string(std::span<const char> from) {
  return {from.begin(), std::ranges::find(from, '\0')};
}

StartupReport StartupReport::make(std::string_view version, std::string_view problem) {
  StartupReport report;
  write_string(version, report.version);
  write_string(problem, report.problem);
  return report;
}

StartupErrors collect_errors(std::span<const StartupReport> reports) {
  std::vector<SharedProblem> problems;
  RankSet concerned;
  for (std::size_t i = 0; i < reports.size(); ++i) {
    const std::string text = problem_of(reports[i], reports.front());
    if (text.empty()) continue;
    const RankSet rank = RankSet::of(static_cast<int>(i));
    concerned.insert(rank);
    const auto known = std::ranges::find(problems, text, &SharedProblem::text);
    if (known == problems.end()) {
      problems.push_back({rank, text});
    } else {
      known->ranks.insert(rank);
    }
  }
  StartupErrors errors{.ranks = concerned.to_vector()};
  for (const SharedProblem& problem : problems)
    errors.text += (errors.text.empty() ? "" : "; ") + prefix_of(problem.ranks) + problem.text;
  return errors;
}

void throw_if_any(const StartupErrors& errors) {
  if (errors.text.empty()) return;
  throw InvalidArgument("the session cannot start: " + errors.text, "", errors.ranks);
}

}  // namespace kolo::internal::session
