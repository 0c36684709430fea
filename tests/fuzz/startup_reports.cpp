// SPDX-License-Identifier: Apache-2.0
// Reports that ranks exchange at the start, perhaps from other versions of the library.
#include <algorithm>
#include <cstring>

#include "kolo/error.hpp"
#include "session/startup/startup_report.hpp"
#include "target.hpp"

namespace kolo::internal::fuzz {
namespace {

using session::StartupReport;

constexpr std::size_t max_ranks = 3;

/// As many reports as there are, the last one filled up with zeros.
std::vector<StartupReport> read(Bytes bytes) {
  bytes = bytes.first(std::min(bytes.size(), max_ranks * sizeof(StartupReport)));
  std::vector<StartupReport> reports((bytes.size() + sizeof(StartupReport) - 1) /
                                     sizeof(StartupReport));
  if (!bytes.empty()) std::memcpy(reports.data(), bytes.data(), bytes.size());
  return reports;
}

bool run(Bytes bytes) {
  const std::vector<StartupReport> reports = read(bytes);
  if (reports.empty()) return false;
  try {
    session::throw_if_any(session::collect_errors(reports));
  } catch (const InvalidArgument& error) {
    require(!error.ranks().empty(), "a refusal that names nobody");
    for (const int rank : error.ranks())
      require(rank >= 0 && static_cast<std::size_t>(rank) < reports.size(), "a rank that is none");
    return false;
  }
  for (const StartupReport& report : reports)
    require(report.version == reports.front().version && report.problem.front() == '\0',
            "a problem is passed over");
  return true;
}

std::string bytes_of(const std::vector<StartupReport>& reports) {
  return {reinterpret_cast<const char*>(reports.data()), reports.size() * sizeof(StartupReport)};
}

std::vector<Seed> seeds() {
  const StartupReport good = StartupReport::make("0.1.0", "");
  return {{"alone", bytes_of({good})}, {"three", bytes_of({good, good, good})}};
}

}  // namespace

const Target startup_reports_target{.name = "startup_reports",
                                    .max_bytes = max_ranks * sizeof(StartupReport),
                                    .run = run,
                                    .seeds = seeds};

}  // namespace kolo::internal::fuzz
