// SPDX-License-Identifier: Apache-2.0
// The judge detects the violation of each promise.
#include "judge.hpp"

#include <gtest/gtest.h>

#include <functional>

namespace kolo::internal::rendezvous {
namespace {

Roster roster(GenerationNumber generation, const std::vector<Member>& members) {
  return {.generation = generation, .members = members};
}

Member member(ProcessId process, std::uint64_t commit) {
  return {.process = process, .host{}, .machine{}, .pid = 1, .commit = commit};
}

class RendezvousJudgeTest : public testing::Test {
 protected:
  /// Processes 1 to 3 are ranks 0 to 2 of generation 1.
  RendezvousJudgeTest() {
    const Roster first = roster(1, {member(1, 0), member(2, 0), member(3, 0)});
    for (const ProcessId process : {1U, 2U, 3U}) judge_.on_join(process, 0);
    for (const ProcessId process : {1U, 2U, 3U}) judge_.on_roster(process, first);
  }

  void expect_violation(const std::string& promise, const std::function<void()>& action) {
    try {
      action();
      ADD_FAILURE() << "nothing was found";
    } catch (const Violation& violation) {
      EXPECT_EQ(violation.promise(), promise) << violation.what();
    }
  }
  void join(ProcessId process, std::uint64_t commit) { judge_.on_join(process, commit); }

  Judge judge_{2, 3};
};

TEST_F(RendezvousJudgeTest, AcceptsWhatIsRight) {
  judge_.on_contribution(1, {.generation = 1});
  judge_.on_contribution(2, {.generation = 1});
  judge_.on_contribution(3, {.generation = 1});
  judge_.on_result(1, {.generation = 1, .payloads = std::vector<Payload>(3)});
  judge_.on_fault(3);
  judge_.on_lost(3, "");
  judge_.on_interruption(1, {.generation = 1});
  join(1, 4);
  join(2, 5);
  judge_.on_roster(2, roster(2, {member(2, 5), member(1, 4)}));
  EXPECT_EQ(judge_.generations(), 2U);
}

TEST_F(RendezvousJudgeTest, AGenerationHasOneRoster) {
  judge_.on_fault(3);
  judge_.on_lost(3, "");
  join(1, 1);
  join(2, 1);
  judge_.on_roster(1, roster(2, {member(1, 1), member(2, 1)}));
  expect_violation("one roster", [&] {
    judge_.on_roster(2, roster(2, {member(2, 1), member(1, 1)}));
  });
}

TEST_F(RendezvousJudgeTest, AllMembersAreTold) {
  judge_.on_closed(3);
  for (int i = 0; i < 2; ++i) {
    join(1, 1);
    join(2, 1);
    if (i == 0)
      judge_.on_roster(1, roster(2, {member(1, 1), member(2, 1)}));
    else
      expect_violation("one roster", [&] {
        judge_.on_roster(1, roster(3, {member(1, 1), member(2, 1)}));
      });
  }
}

TEST_F(RendezvousJudgeTest, RankZeroHasTheNewestCommit) {
  judge_.on_closed(3);
  join(1, 4);
  join(2, 5);
  expect_violation("newest", [&] { judge_.on_roster(1, roster(2, {member(1, 4), member(2, 5)})); });
}

TEST_F(RendezvousJudgeTest, NewcomersComeLast) {
  judge_.on_closed(3);
  for (const ProcessId process : {1U, 2U, 4U}) join(process, 0);
  expect_violation("order", [&] {
    judge_.on_roster(1, roster(2, {member(1, 0), member(4, 0), member(2, 0)}));
  });
}

TEST_F(RendezvousJudgeTest, NobodyIsForgotten) {
  join(1, 0);
  join(2, 0);
  expect_violation("forgotten", [&] {
    judge_.on_roster(1, roster(2, {member(1, 0), member(2, 0)}));
  });
}

TEST_F(RendezvousJudgeTest, OnlyWhoHasJoinedIsAMember) {
  judge_.on_closed(3);
  join(1, 0);
  expect_violation("joined", [&] { judge_.on_roster(1, roster(2, {member(1, 0), member(2, 0)})); });
}

TEST_F(RendezvousJudgeTest, LostProcessesStayOut) {
  judge_.on_closed(3);
  for (const ProcessId process : {1U, 2U, 3U}) join(process, 0);
  expect_violation("fenced", [&] {
    judge_.on_roster(1, roster(2, {member(1, 0), member(2, 0), member(3, 0)}));
  });
  expect_violation("fenced", [&] { judge_.on_welcome(3); });
}

TEST_F(RendezvousJudgeTest, AnOldGenerationIsNotServed) {
  for (const ProcessId process : {1U, 2U, 3U}) judge_.on_contribution(process, {.generation = 1});
  judge_.on_interruption(1, {.generation = 1});
  expect_violation(
      "old", [&] { judge_.on_result(1, {.generation = 1, .payloads = std::vector<Payload>(3)}); });
  expect_violation("old", [&] { judge_.on_announcement(1, {.generation = 1}); });
}

TEST_F(RendezvousJudgeTest, ResultsAreWhatAllHaveGiven) {
  judge_.on_contribution(1, {.generation = 1});
  judge_.on_contribution(2, {.generation = 1});
  const Result result{.generation = 1, .payloads = std::vector<Payload>(3)};
  expect_violation("answers", [&] { judge_.on_result(1, result); });
  judge_.on_contribution(3, {.generation = 1, .payload = Bytes(1)});
  expect_violation("answers", [&] { judge_.on_result(1, result); });
}

TEST_F(RendezvousJudgeTest, SizesAreWithinTheBounds) {
  judge_.on_closed(2);
  judge_.on_closed(3);
  join(1, 0);
  expect_violation("size", [&] { judge_.on_roster(1, roster(2, {member(1, 0)})); });
}

TEST_F(RendezvousJudgeTest, AFaultlessProcessIsKept) {
  expect_violation("faultless", [&] { judge_.on_lost(2, "by mistake"); });
}

TEST_F(RendezvousJudgeTest, AJobEndsOnceAndWhole) {
  expect_violation("ends", [&] { judge_.conclude(false, 3, 0); });
  judge_.on_finish(0);
  EXPECT_NO_THROW(judge_.conclude(false, 3, 0));
  expect_violation("ends", [&] { judge_.conclude(false, 3, 1); });
  expect_violation("ends", [&] { judge_.conclude(false, 0, 0); });
  expect_violation("ends", [&] { judge_.on_finish(0); });
}

}  // namespace
}  // namespace kolo::internal::rendezvous
