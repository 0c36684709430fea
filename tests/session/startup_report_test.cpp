// SPDX-License-Identifier: Apache-2.0
#include "session/startup/startup_report.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <string>
#include <vector>

#include "kolo/error.hpp"

namespace kolo::internal::session {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

InvalidArgument refusal_of(const std::vector<StartupReport>& reports) {
  try {
    throw_if_any(collect_errors(reports));
  } catch (const InvalidArgument& error) {
    return error;
  }
  throw std::logic_error("nothing was refused");
}

TEST(StartupReports, WithoutProblemsAreNoErrors) {
  for (std::size_t ranks = 1; ranks <= 4; ++ranks)
    EXPECT_NO_THROW(
        throw_if_any(collect_errors(std::vector(ranks, StartupReport::make("1.2", "")))));
}

TEST(StartupReports, NameWhoHasAProblem) {
  const InvalidArgument error =
      refusal_of({StartupReport::make("1.2", ""), StartupReport::make("1.2", "X=7"),
                  StartupReport::make("1.2", "Y=8"), StartupReport::make("1.2", "X=7")});
  EXPECT_THAT(error.ranks(), ElementsAre(1, 2, 3));
  EXPECT_THAT(error.what(), HasSubstr("ranks 1, 3: X=7; rank 2: Y=8"));
}

TEST(StartupReports, NameWhoRunsAnotherVersion) {
  const InvalidArgument error =
      refusal_of({StartupReport::make("1.2", ""), StartupReport::make("1.3", "not to be trusted"),
                  StartupReport::make("1.2", "")});
  EXPECT_THAT(error.ranks(), ElementsAre(1));
  EXPECT_THAT(error.what(), testing::ContainsRegex("rank 1: runs Kolo 1.3.*, rank 0 runs 1.2"));
}

/// By rank: the ranks that it misses.
std::vector<int> blamed(const std::vector<std::vector<int>>& missing) {
  std::vector<MissingRanks> reports;
  for (const std::vector<int>& ranks : missing) reports.push_back(MissingRanks::of(ranks));
  return find_unreachable(reports);
}

TEST(UnreachableRanks, AreNoneWithoutReports) { EXPECT_THAT(blamed({{}, {}, {}}), IsEmpty()); }

TEST(UnreachableRanks, AreThoseThatMostMiss) {
  EXPECT_THAT(blamed({{1}, {0, 2, 3}, {1}, {1}}), ElementsAre(1));
  EXPECT_THAT(blamed({{2, 3}, {2, 3}, {0, 1}, {0, 1}}), ElementsAre(2, 3));  // two hosts of two
}

TEST(UnreachableRanks, AreTheNewestOfAPair) {
  EXPECT_THAT(blamed({{3}, {}, {}, {0}}), ElementsAre(3));
  EXPECT_THAT(blamed({{}, {}, {3}, {2}}), ElementsAre(3));
}

TEST(UnreachableRanks, AreKnownByOneSideIfTheOtherIsSilent) {
  EXPECT_THAT(blamed({{}, {0}, {0}}), ElementsAre(0));
  EXPECT_THAT(blamed({{}, {0}, {}}), ElementsAre(1));
}

// Rank 0 waits for 1, which hears nothing from 2.
TEST(UnreachableRanks, AreNotThoseThatWaitForOthers) {
  EXPECT_THAT(blamed({{1}, {2}, {1}}), ElementsAre(2));
  EXPECT_THAT(blamed({{1}, {0, 2}, {1}, {1}}), ElementsAre(1));
}

TEST(UnreachableRanks, AreRanksOfTheSession) {
  EXPECT_THAT(blamed({{0, -1, 7}, {}}), IsEmpty());
  EXPECT_THAT(blamed(std::vector(3, std::vector(100, 1))), ElementsAre(1));
}

TEST(StartupReports, CutOffWhatHasNoRoom) {
  const InvalidArgument error = refusal_of({StartupReport::make("1.2", std::string(1000, 'p'))});
  EXPECT_THAT(error.what(), HasSubstr(": " + std::string(479, 'p')));
}

TEST(StartupReports, NeedNoZeroAtTheEnd) {
  StartupReport full;
  std::ranges::fill(full.version, 'v');
  std::ranges::fill(full.problem, 'p');
  const InvalidArgument error = refusal_of({full, StartupReport::make("1.2", "")});
  EXPECT_THAT(error.ranks(), ElementsAre(0, 1));
  EXPECT_THAT(error.what(), HasSubstr("rank 0: " + std::string(480, 'p') + "; rank 1"));
  EXPECT_THAT(error.what(), HasSubstr("rank 0 runs " + std::string(32, 'v')));
}

}  // namespace
}  // namespace kolo::internal::session
