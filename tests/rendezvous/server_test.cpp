// SPDX-License-Identifier: Apache-2.0
// The server's part in a job of kolorun: hosts that go and return, and processes that join,
// complete or fail.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/server/connections.hpp"
#include "server_fixture.hpp"

namespace kolo::internal::rendezvous {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST_F(ServerTest, ASecondSigtermEndsTheJobAtOnce) {
  begin(false);
  add_process(3, 1);
  add_process(4, 2);
  server_->on_signal(SIGTERM, now_);
  EXPECT_FALSE(server_->finished());
  server_->on_signal(SIGTERM, now_);
  EXPECT_EQ(end_of(*server_), "143: ");
}

TEST_F(ServerTest, SigtermBeforeThereAreProcessesEndsTheJob) {
  server_.emplace(options_of(false), [] { return std::uint64_t{4}; });
  server_->on_signal(SIGTERM, now_);
  EXPECT_EQ(end_of(*server_), "143: ");
}

TEST_F(ServerTest, TheJobIsOverBeforeAgentsAreTold) {
  begin(false);
  static_cast<void>(server_->take());
  server_->end(7, "there is no ssh", now_);
  const std::vector<Action> actions = server_->take();
  const auto* finish = std::get_if<Finish>(&actions.at(0));
  ASSERT_NE(finish, nullptr);
  EXPECT_EQ(finish->status, 7);
  EXPECT_THAT(receivers_of<End>(actions), ElementsAre(1, 2));
}

TEST_F(ServerTest, AnAgentThatComesAgainReplacesTheOneOfBefore) {
  begin(true);
  add_process(3, 1);
  add_process(4, 2);
  EXPECT_EQ(server_->generation(), 1U);
  static_cast<void>(server_->take());
  add_agent(5, "b", 12);
  const std::vector<Action> actions = server_->take();
  EXPECT_THAT(receivers_of<Refusal>(actions), ElementsAre(2, 4));  // the agent, and its process
  EXPECT_THAT(receivers_of<Interruption>(actions), ElementsAre(3));
  EXPECT_THAT(receivers_of<Welcome>(actions), ElementsAre(5));
  EXPECT_TRUE(receivers_of<Start>(actions).empty());  // its host rests
  now_ += 1s;
  server_->on_time(now_);
  EXPECT_THAT(receivers_of<Start>(server_->take()), ElementsAre(5));
  // One with another number is another host.
  add_agent(6, "b", 13);
  EXPECT_TRUE(receivers_of<Refusal>(server_->take()).empty());
}

TEST_F(ServerTest, AnAgentThatComesAgainInAFixedJobHearsThatTheJobIsOver) {
  begin(false);
  add_process(3, 1);
  add_process(4, 2);
  static_cast<void>(server_->take());
  add_agent(5, "b", 12);
  const std::vector<Action> actions = server_->take();
  EXPECT_TRUE(server_->finished());
  EXPECT_TRUE(receivers_of<Welcome>(actions).empty());
  EXPECT_THAT(receivers_of<Refusal>(actions), testing::Contains(5));
}

// It inherits the environment of the rank, and so the number of its process.
TEST_F(ServerTest, AProgramThatARankStartsIsToldHowToRunAlone) {
  begin(false);
  add_process(3, 1);
  static_cast<void>(server_->take());
  server_->on_open(4, "here", now_);
  shake_hands(*server_, 4, Hello{.process = 1, .version = "1"}, now_);
  std::string reason;
  for (const Action& action : server_->take())
    if (const auto* send = std::get_if<Send>(&action))
      if (const auto* refusal = std::get_if<Refusal>(send->message.get())) reason = refusal->reason;
  EXPECT_THAT(reason, HasSubstr("it is not a process of this job"));
  EXPECT_THAT(reason, HasSubstr("KOLO_LAUNCHER=none"));
}

TEST_F(ServerTest, AProcessThatWasGivenUpIsNotAdmittedAgain) {
  begin(true);
  add_process(3, 1);
  add_process(4, 2);
  server_->on_close(4, "its connection is closed", now_);
  static_cast<void>(server_->take());
  server_->on_open(5, "here", now_);
  shake_hands(*server_, 5, Hello{.process = 2, .version = "1"}, now_);
  EXPECT_THAT(receivers_of<Refusal>(server_->take()), ElementsAre(5));
}

TEST_F(ServerTest, AHostThatIsRemovedLeavesAtTheNextCommit) {
  begin(true);
  add_process(3, 1);
  add_process(4, 2);
  static_cast<void>(server_->take());
  server_->remove_host("b", "it is not among the discovered hosts any more", now_);
  EXPECT_THAT(receivers_of<Announcement>(server_->take()), ElementsAre(3));
  server_->on_message(3, Join{.generation = 1, .commit = 4, .orderly = true}, now_);
  server_->on_message(4, Join{.generation = 1, .commit = 4, .orderly = true}, now_);
  const std::vector<Action> actions = server_->take();
  EXPECT_THAT(receivers_of<Roster>(actions), ElementsAre(3));
  EXPECT_TRUE(receivers_of<Interruption>(actions).empty());
  server_->on_message(2, Exited{.process = 2}, now_);
  EXPECT_THAT(receivers_of<End>(server_->take()), ElementsAre(2));
}

TEST_F(ServerTest, TheRanksOfARemovedHostAreToldThatTheirJobIsOver) {
  begin(true);
  add_process(3, 1);
  add_process(4, 2);
  server_->remove_host("b", "no reason", now_);
  server_->on_message(3, Join{.generation = 1, .commit = 4, .orderly = true}, now_);
  static_cast<void>(server_->take());
  server_->on_message(4, Join{.generation = 1, .commit = 4, .orderly = true}, now_);
  const std::vector<Action> actions = server_->take();
  EXPECT_THAT(receivers_of<End>(actions), ElementsAre(4));
  EXPECT_THAT(receivers_of<Refusal>(actions), IsEmpty());
  EXPECT_THAT(receivers_of<Kill>(actions), ElementsAre(2));
}

TEST_F(ServerTest, AProcessThatHasDoneItsPartIsNoLoss) {
  begin(true, /*reset_limit=*/0);
  add_process(3, 1);
  add_process(4, 2);
  server_->on_message(4, Leave{1}, now_);
  server_->on_close(4, "closed", now_);
  server_->on_message(2, Exited{.process = 2}, now_);
  server_->on_message(3, Join{.generation = 1, .commit = 4}, now_);
  EXPECT_EQ(end_of(*server_), "");
  EXPECT_EQ(server_->generation(), 2U);
}

TEST_F(ServerTest, ANewcomerThatStandsStillHoldsTheOthersUpForAWhile) {
  begin(true);
  add_process(3, 1);
  add_process(4, 2);
  server_->on_message(3, Join{.generation = 1, .commit = 4, .orderly = true}, now_);
  server_->on_message(4, Join{.generation = 1, .commit = 4, .orderly = true}, now_);
  ASSERT_EQ(server_->generation(), 2U);
  server_->on_message(3, Contribution{.generation = 2}, now_);
  static_cast<void>(server_->take());
  now_ += 120s;
  for (const Link agent : {Link{1}, Link{2}}) server_->on_message(agent, Keepalive{}, now_);
  server_->on_time(now_);
  EXPECT_THAT(receivers_of<Kill>(server_->take()), ElementsAre(2));
}

TEST_F(ServerTest, AProgramThatFailsEverywhereBeforeItsFirstSessionEndsTheJob) {
  begin(true);
  server_->on_message(1, Exited{.process = 1, .status = 127}, now_);
  EXPECT_FALSE(server_->finished());  // the other may do better
  server_->on_message(2, Exited{.process = 2, .status = 127}, now_);
  ASSERT_TRUE(server_->finished());
  const auto is_finish = [](const Action& action) {
    const auto* finish = std::get_if<Finish>(&action);
    return finish != nullptr && finish->status == 127;
  };
  EXPECT_TRUE(std::ranges::any_of(server_->take(), is_finish));
}

TEST_F(ServerTest, AHostThatFailsBeforeTheFirstSessionIsTriedAgain) {
  begin(true);
  server_->on_close(1, "its connection is closed", now_);
  server_->on_close(2, "its connection is closed", now_);
  EXPECT_FALSE(server_->finished());
}

TEST_F(ServerTest, AHostThatIsWantedAgainStays) {
  begin(true);
  add_process(3, 1);
  add_process(4, 2);
  server_->remove_host("b", "no reason", now_);
  server_->keep_host("b", now_);
  static_cast<void>(server_->take());
  server_->on_message(3, Join{.generation = 1, .commit = 4, .orderly = true}, now_);
  server_->on_message(4, Join{.generation = 1, .commit = 4, .orderly = true}, now_);
  EXPECT_THAT(receivers_of<Roster>(server_->take()), ElementsAre(3, 4));
}

TEST_F(ServerTest, TheJobDoesNotBeginAnewWhenItsStateIsLost) {
  begin(true);
  add_process(3, 1);
  add_process(4, 2);
  server_->on_message(3, Join{.generation = 1, .commit = 500, .orderly = true}, now_);
  server_->on_message(4, Join{.generation = 1, .commit = 0, .orderly = true}, now_);
  EXPECT_EQ(server_->generation(), 2U);
  EXPECT_EQ(end_of(*server_), "");
  server_->on_close(3, "it is killed", now_);
  server_->on_message(4, Join{.generation = 2}, now_);
  EXPECT_THAT(end_of(*server_), HasSubstr("1: no process with the job's state is left"));
}

// Rank 0 was lost before the others had its parts.
TEST_F(ServerTest, TheJobBeginsAnewWhenOnlyTheFirstCommitIsLost) {
  begin(true);
  add_process(3, 1);
  add_process(4, 2);
  server_->on_message(3, Join{.generation = 1, .commit = 1}, now_);
  server_->on_message(4, Join{.generation = 1, .commit = 0}, now_);
  EXPECT_EQ(server_->generation(), 2U);
  server_->on_close(3, "it is killed", now_);
  server_->on_message(4, Join{.generation = 2}, now_);
  EXPECT_EQ(end_of(*server_), "");
  EXPECT_EQ(server_->generation(), 3U);
}

TEST_F(ServerTest, ASurvivorMayLackTheLastCommit) {
  begin(true);
  add_process(3, 1);
  add_process(4, 2);
  server_->on_message(3, Join{.generation = 1, .commit = 5}, now_);
  server_->on_close(3, "it is killed", now_);
  server_->on_message(4, Join{.generation = 1, .commit = 4}, now_);
  EXPECT_EQ(end_of(*server_), "");
  EXPECT_EQ(server_->generation(), 2U);
}

TEST_F(ServerTest, AJobMayBeginWithFewerHostsAfterTheTimeout) {
  server_.emplace(options_of(true), [] { return std::uint64_t{4}; });
  add_agent(1, "a", 11);
  now_ = patience_for_hosts;
  server_->on_time(now_);
  bool says = false;
  for (const Action& action : server_->take())
    if (const auto* note = std::get_if<Note>(&action))
      says |= note->text == "waiting for hosts: 1 of 2 slots are available: a:1";
  EXPECT_TRUE(says);
  now_ = options_of(true).start_timeout;
  server_->on_message(1, Keepalive{}, now_ - 1ns);
  server_->on_time(now_);
  EXPECT_THAT(receivers_of<Start>(server_->take()), ElementsAre(1));
  add_process(3, 1);
  EXPECT_FALSE(server_->finished());
  EXPECT_EQ(server_->generation(), 1U);
}

TEST_F(ServerTest, AMemberThatFailsAfterTheOthersHaveDoneTheirPartFailsTheJob) {
  begin(true);
  add_process(3, 1);
  add_process(4, 2);
  server_->on_message(4, Leave{}, now_);
  server_->on_close(4, "closed", now_);
  server_->on_message(2, Exited{.process = 2}, now_);
  server_->on_close(3, "its connection is closed", now_);  // while it writes the model
  EXPECT_EQ(end_of(*server_), "");
  server_->on_message(1, Exited{.process = 1, .status = 139}, now_);
  EXPECT_THAT(end_of(*server_), HasSubstr("139: rank 0"));
}

TEST_F(ServerTest, AMemberThatFailsBeforeAnotherHasDoneItsPartDoesNotFailTheJob) {
  begin(true);
  add_process(3, 1);
  add_process(4, 2);
  server_->on_message(2, Exited{.process = 2, .status = 139}, now_);
  server_->on_close(4, "its connection is closed", now_);
  server_->on_message(3, Leave{}, now_);
  server_->on_close(3, "closed", now_);
  server_->on_message(1, Exited{.process = 1}, now_);
  EXPECT_THAT(end_of(*server_), HasSubstr("0: "));
}

TEST_F(ServerTest, AMemberThatHasCompletedIsNeitherAwaitedNorKilled) {
  begin(true);
  add_process(3, 1);
  add_process(4, 2);
  server_->on_message(3, Completed{1}, now_);
  server_->on_message(4, Completed{1}, now_);
  server_->on_message(2, Exited{2, 139}, now_);
  server_->on_close(4, "it hung up", now_);
  static_cast<void>(server_->take());
  now_ += 3600s;
  for (const Link agent : {Link{1}, Link{2}}) server_->on_message(agent, Keepalive{}, now_);
  EXPECT_THAT(receivers_of<Kill>(server_->take()), IsEmpty());
  EXPECT_FALSE(server_->finished());
  EXPECT_GT(server_->next_time().value_or(now_ + 1s), now_);
  server_->on_message(3, Leave{1}, now_);
  server_->on_message(1, Exited{1, 0}, now_);
  EXPECT_TRUE(server_->finished());
}

// The second agreement at the end of the training has reached only some.
TEST_F(ServerTest, OthersGoOnWithoutAMemberThatHasCompleted) {
  begin(true);
  add_process(3, 1);
  add_process(4, 2);
  server_->on_message(3, Completed{1}, now_);
  static_cast<void>(server_->take());
  server_->on_message(4, Join{1, 5, false}, now_);
  EXPECT_EQ(server_->generation(), 2U);
  EXPECT_THAT(receivers_of<Roster>(server_->take()), ElementsAre(4));
  server_->on_message(4, Completed{2}, now_);
  server_->on_message(4, Leave{2}, now_);
  server_->on_message(2, Exited{2, 0}, now_);
  EXPECT_FALSE(server_->finished());
  server_->on_message(3, Leave{1}, now_);
  server_->on_message(1, Exited{1, 0}, now_);
  EXPECT_TRUE(server_->finished());
}

TEST_F(ServerTest, NewcomersThatAreRefusedDoNotCountForTheResetLimit) {
  begin(true, 1);
  add_process(3, 1);
  add_process(4, 2);
  server_->on_message(3, Begun{1}, now_);
  server_->on_message(2, Exited{2, 137}, now_);
  server_->on_close(4, "it hung up", now_);  // the one loss that is allowed
  server_->on_message(3, Join{1, 5, false}, now_);
  server_->on_message(3, Begun{2}, now_);
  now_ += 1s;
  server_->on_time(now_);
  add_process(5, 3);  // on "b" again
  server_->on_message(3, Join{2, 6, true}, now_);
  ASSERT_EQ(server_->generation(), 3U);
  server_->on_message(3, FailureReport{3, {1}, "it has other settings"}, now_);
  server_->on_message(3, Join{3, 6, false}, now_);
  EXPECT_EQ(server_->generation(), 4U);
  EXPECT_FALSE(server_->finished());
}

TEST_F(ServerTest, ANewcomerThatEndsWithoutASessionDoesNotEndGrowth) {
  begin(true);
  add_process(3, 1);
  add_process(4, 2);
  server_->on_message(2, Exited{.process = 2, .status = 9}, now_);
  server_->on_close(4, "it is killed", now_);
  server_->on_message(3, Join{.generation = 1, .commit = 1}, now_);
  static_cast<void>(server_->take());
  now_ += 1s;
  server_->on_time(now_);
  EXPECT_THAT(receivers_of<Start>(server_->take()), ElementsAre(2));
  server_->on_message(2, Exited{.process = 3}, now_);
  now_ += 2s;
  server_->on_time(now_);
  EXPECT_THAT(receivers_of<Start>(server_->take()), ElementsAre(2));
}

TEST(RefusalsTest, AFloodMakesFewLines) {
  Refusals refusals;
  std::string last;
  int lines = 0;
  for (int i = 0; i < 1000; ++i)
    if (const auto line = refusals.line("here", "the secret is wrong", 1s)) {
      ++lines;
      last = *line;
    }
  EXPECT_EQ(lines, Refusals::max_lines);
  EXPECT_THAT(last, HasSubstr("others are only counted"));
  EXPECT_THAT(refusals.line("there", "the secret is wrong", 61s).value_or(""),
              HasSubstr("980 more"));
  EXPECT_EQ(refusals.line("there", "the secret is wrong", 62s),
            "a connection from there is refused: the secret is wrong");
}

}  // namespace
}  // namespace kolo::internal::rendezvous
