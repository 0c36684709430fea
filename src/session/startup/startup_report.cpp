// SPDX-License-Identifier: Apache-2.0
#include "session/startup/startup_report.hpp"

#include <algorithm>
#include <cstddef>
#include <set>
#include <utility>

#include "base/rank_set.hpp"

namespace kolo::internal::session {
namespace {

/// The processor architecture, as part of the version. Ranks of different architectures cannot
/// share a session: they round schedules differently and produce other NaNs, so their bits would
/// diverge.
#if defined(__x86_64__)
constexpr std::string_view architecture = " for x86-64";
#elif defined(__aarch64__)
constexpr std::string_view architecture = " for ARM64";
#else
constexpr std::string_view architecture = " for another architecture";
#endif

/// Ranks that report the same problem.
struct SharedProblem {
  RankSet ranks;
  std::string text;
};

std::string prefix_of(const RankSet& ranks) {
  return (ranks.count() == 1 ? "rank " : "ranks ") + to_string(ranks) + ": ";
}

/// The problem of one rank; empty if there is none. For a rank of another version, the difference
/// is reported instead, because that version's text may have another meaning.
std::string problem_of(const StartupReport& report, const StartupReport& first) {
  if (report.version != first.version)
    return "runs Kolo " + read_string(report.version) + ", rank 0 runs " +
           read_string(first.version);
  return read_string(report.problem);
}

/// Pairs (a, b) of ranks: a has no connection to b.
using Pairs = std::set<std::pair<int, int>>;

Pairs read_pairs(std::span<const MissingRanks> missing) {
  Pairs pairs;
  const auto size = static_cast<int>(missing.size());
  for (int rank = 0; rank < size; ++rank) {
    const MissingRanks& own = missing[static_cast<std::size_t>(rank)];
    for (std::size_t i = 0; i < std::min<std::size_t>(own.count, own.ranks.size()); ++i)
      if (own.ranks[i] >= 0 && own.ranks[i] < size && own.ranks[i] != rank)
        pairs.emplace(rank, own.ranks[i]);
  }
  return pairs;
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
  write_string(std::string(version).append(architecture), report.version);
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

MissingRanks MissingRanks::of(std::span<const int> ranks) {
  MissingRanks missing;
  missing.count = static_cast<std::uint32_t>(std::min(ranks.size(), max_count));
  std::copy_n(ranks.begin(), missing.count, missing.ranks.begin());
  return missing;
}

std::vector<int> find_unreachable(std::span<const MissingRanks> missing) {
  Pairs pairs = read_pairs(missing);
  const auto is_mutual = [all = pairs](const auto& pair) {
    return all.contains({pair.second, pair.first});
  };
  if (std::ranges::any_of(pairs, is_mutual))
    std::erase_if(pairs, [&](const auto& pair) { return !is_mutual(pair); });
  std::set<int> blamed;
  while (!pairs.empty()) {
    std::vector<std::set<int>> others(missing.size());
    for (const auto& [a, b] : pairs) {
      others[static_cast<std::size_t>(a)].insert(b);
      others[static_cast<std::size_t>(b)].insert(a);
    }
    const auto most = std::ranges::max_element(others.rbegin(), others.rend(), {},
                                               [](const auto& set) { return set.size(); });
    const auto worst = static_cast<int>(others.rend() - most) - 1;
    blamed.insert(worst);
    std::erase_if(pairs,
                  [=](const auto& pair) { return pair.first == worst || pair.second == worst; });
  }
  return {blamed.begin(), blamed.end()};
}

StartupErrors collect_errors(std::span<const StartupReport> reports,
                             std::span<const MissingRanks> missing) {
  StartupErrors errors = collect_errors(reports);
  const std::vector<int> unreachable = find_unreachable(missing);
  if (unreachable.empty()) return errors;
  errors.ranks = unreachable;
  const std::string others = errors.text.empty() ? "" : ": " + errors.text;
  errors.text = (unreachable.size() == 1 ? "rank " : "ranks ") +
                to_string(RankSet::of(unreachable)) + " cannot be reached" + others;
  return errors;
}

void throw_if_any(const StartupErrors& errors) {
  if (errors.text.empty()) return;
  throw InvalidArgument("the session cannot start: " + errors.text, "", errors.ranks);
}

}  // namespace kolo::internal::session
