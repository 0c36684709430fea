// SPDX-License-Identifier: Apache-2.0
// How a job of kolorun ends: by signals, and by the process that has failed first.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <string>
#include <utility>
#include <vector>

#include "server_fixture.hpp"

namespace kolo::internal::rendezvous {
namespace {

using namespace std::chrono_literals;
using testing::ContainsRegex;
using testing::ElementsAre;
using testing::IsEmpty;

TEST_F(ServerTest, ASignalThatEndsProgramsEndsTheJobOnAllHosts) {
  begin(false);
  static_cast<void>(server_->take());
  server_->on_signal(SIGUSR1, now_);
  EXPECT_THAT(receivers_of<Signal>(server_->take()), ElementsAre(1, 2));
  EXPECT_FALSE(server_->finished());
  server_->on_signal(SIGINT, now_);
  const std::vector<Action> actions = server_->take();
  EXPECT_THAT(receivers_of<Signal>(actions), ElementsAre(1, 2));
  EXPECT_THAT(receivers_of<End>(actions), ElementsAre(1, 2));
  ASSERT_TRUE(server_->finished());
  // Agents that are slow get a second one.
  server_->on_signal(SIGINT, now_);
  EXPECT_THAT(receivers_of<Signal>(server_->take()), ElementsAre(1, 2));
}

TEST_F(ServerTest, AfterSigtermTheJobEndsAsItsProcessesDo) {
  const auto exit = [&](ProcessId process, int status) {
    if (status == 0) server_->on_message(process + 2, Leave{}, now_);
    server_->on_message(process, Exited{process, status}, now_);
    server_->on_close(process + 2, "it has ended", now_);
  };
  // The status of both processes, and the end of the job.
  const std::vector<std::pair<int, std::string>> cases{
      {0, "0: "}, {143, "143: "}, {137, "143: .*signal 9 has ended it"}, {3, "3: .*status 3"}};
  for (const bool elastic : {false, true}) {
    for (const auto& [status, end] : cases) {
      SCOPED_TRACE(fmt::format("elastic {}, status {}", elastic, status));
      begin(elastic);
      add_process(3, 1);
      add_process(4, 2);
      static_cast<void>(server_->take());
      server_->on_signal(SIGTERM, now_);
      std::vector<Action> actions = server_->take();
      EXPECT_THAT(receivers_of<Signal>(actions), ElementsAre(1, 2));
      EXPECT_THAT(receivers_of<End>(actions), IsEmpty());
      exit(1, status);
      actions = server_->take();
      if (!server_->finished()) {
        now_ += 60s;  // longer than the cooldown of the host
        for (const Link agent : {Link{1}, Link{2}}) server_->on_message(agent, Keepalive{}, now_);
        server_->on_time(now_);
        for (Action& action : server_->take()) actions.push_back(std::move(action));
        EXPECT_THAT(receivers_of<Start>(actions), IsEmpty()) << "a process is replaced";
        exit(2, status);
        for (Action& action : server_->take()) actions.push_back(std::move(action));
      }
      ASSERT_TRUE(server_->finished());
      const auto* finish = find_finish(actions);
      ASSERT_NE(finish, nullptr);
      const std::string text = fmt::format("{}: {}", finish->status, finish->reason);
      // An elastic job has no first failure.
      EXPECT_THAT(text, testing::MatchesRegex(elastic && status != 143 && status != 0
                                                  ? end.substr(0, end.find(' ')) + " .*"
                                                  : end));
    }
  }
}

/// A job of two processes, in which the session of the second one has failed by itself.
class FirstCauseTest : public ServerTest {
 protected:
  FirstCauseTest() {
    begin(false);
    add_process(3, 1);
    add_process(4, 2);
    server_->on_message(4, SessionFailed{"it has thrown"}, now_);
    server_->on_message(3, SessionFailed{"it has noticed"}, now_);
    static_cast<void>(server_->take());
  }
  void exit(ProcessId process, int status) {
    server_->on_close(process + 2, "it has ended", now_);
    server_->on_message(
        process, Exited{.process = process, .status = status, .last_lines = "its lines"}, now_);
  }
};

TEST_F(FirstCauseTest, TheCauseIsNamedAlthoughAnotherEndsBefore) {
  exit(1, 1);
  EXPECT_FALSE(server_->finished());
  exit(2, 3);
  const std::vector<Action> actions = server_->take();
  const Finish* const finish = find_finish(actions);
  ASSERT_NE(finish, nullptr);
  EXPECT_EQ(finish->status, 3);
  EXPECT_EQ(finish->last_lines, "its lines");
  EXPECT_THAT(finish->reason, ContainsRegex("^rank 1 .*has failed: it has thrown.*status 3$"));
}

TEST_F(FirstCauseTest, TheCauseMayBeHeardAfterItsVictim) {
  begin(false);
  add_process(3, 1);
  add_process(4, 2);
  server_->on_close(3, "its connection is closed", now_);
  server_->on_message(4, SessionFailed{"it has thrown"}, now_);
  exit(1, 1);
  EXPECT_FALSE(server_->finished());
  exit(2, 3);
  EXPECT_THAT(end_of(*server_), ContainsRegex("^3: rank 1 .*has failed: it has thrown.*status 3$"));
}

// Of two processes that end at the same time, the messages come in any order.
TEST_F(FirstCauseTest, TheCauseIsNamedInWhateverOrderTheEndsAreHeard) {
  enum class Heard { closes, exits };
  std::vector<std::pair<ProcessId, Heard>> order{
      {1, Heard::closes}, {1, Heard::exits}, {2, Heard::closes}, {2, Heard::exits}};
  do {
    begin(false);
    add_process(3, 1);
    add_process(4, 2);
    server_->on_message(4, SessionFailed{"it has thrown"}, now_);
    std::string text;
    for (const auto& [process, heard] : order) {
      text += fmt::format(" {} {}", process, heard == Heard::closes ? "closes" : "exits");
      if (heard == Heard::closes)
        server_->on_close(process + 2, "it has ended", now_);
      else
        server_->on_message(process, Exited{.process = process, .status = process == 1 ? 1 : 3},
                            now_);
    }
    EXPECT_THAT(end_of(*server_), ContainsRegex("^3: rank 1 .*has failed: it has thrown; .*3$"))
        << text;
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST_F(FirstCauseTest, TheCauseMayTakeTooLong) {
  exit(1, 1);
  now_ += 3s;
  for (const Link agent : {Link{1}, Link{2}}) server_->on_message(agent, Keepalive{}, now_);
  EXPECT_LE(server_->next_time().value_or(1h), now_);
  server_->on_time(now_);
  EXPECT_THAT(end_of(*server_),
              ContainsRegex("^1: rank 0 .*status 1. Before that, rank 1 .*failed: "
                            "it has thrown$"));
}

TEST_F(FirstCauseTest, OneThatRecoversIsNone) {
  server_->on_message(4, Leave{}, now_);
  exit(2, 0);
  exit(1, 5);
  EXPECT_THAT(end_of(*server_), ContainsRegex("^5: rank 0 .*has failed: it has noticed; .*5$"));
}

TEST_F(FirstCauseTest, AnotherSessionForgetsIt) {
  server_->on_message(4, Join{.generation = 1}, now_);
  exit(1, 5);
  EXPECT_THAT(end_of(*server_), ContainsRegex("^5: rank 0 "));
}

/// A job of two processes, in which the first misses the second.
class VictimTest : public ServerTest {
 protected:
  VictimTest() {
    begin(false);
    add_process(3, 1);
    add_process(4, 2);
    server_->on_message(3, RanksMissed{1, {1}, "allreduce \"x\""}, now_);
    static_cast<void>(server_->take());
  }
  void exit(ProcessId process, int status) {
    server_->on_close(process + 2, "it has ended", now_);
    server_->on_message(process, Exited{.process = process, .status = status}, now_);
  }
  /// What is due by then happens; this agent is heard before.
  void pass(Time time, Link agent) {
    now_ += time;
    server_->on_message(agent, Keepalive{}, now_);
    if (const auto next = server_->next_time(); next && *next <= now_) server_->on_time(now_);
  }
};

TEST_F(VictimTest, TheCauseMayBeHeardAfterItsVictim) {
  exit(1, 1);
  EXPECT_FALSE(server_->finished());
  exit(2, 137);
  EXPECT_THAT(end_of(*server_), ContainsRegex("^137: rank 1 .*signal 9 has ended it$"));
  EXPECT_EQ(server_->waits(), "the other ranks waited in allreduce \"x\"");
}

TEST_F(VictimTest, TheCauseMayBeHeardBetweenTheEndsOfItsVictim) {
  server_->on_close(3, "it has ended", now_);
  exit(2, 137);
  EXPECT_FALSE(server_->finished());
  server_->on_message(1, Exited{.process = 1, .status = 1}, now_);
  EXPECT_THAT(end_of(*server_), ContainsRegex("^137: rank 1 .*signal 9 has ended it$"));
}

TEST_F(VictimTest, AHostThatIsCutOffIsTheCause) {
  exit(1, 1);
  for (int i = 0; i < 9; ++i) {
    pass(1s, 1);
    EXPECT_FALSE(server_->finished());
  }
  pass(2s, 1);
  EXPECT_THAT(
      end_of(*server_),
      ContainsRegex("^1: the agent on b is lost: it sent nothing for 10 s; with it: rank 1$"));
}

TEST_F(VictimTest, ACauseThatHangsIsNamed) {
  exit(1, 1);
  pass(1s, 2);
  EXPECT_FALSE(server_->finished());
  pass(2s, 2);
  EXPECT_THAT(end_of(*server_), ContainsRegex("^1: rank 0 .*status 1. It missed rank 1 [^;]*$"));
}

TEST_F(VictimTest, OneThatHasLeftIsNotAwaited) {
  server_->on_message(4, Leave{1}, now_);
  exit(1, 5);
  EXPECT_THAT(end_of(*server_), ContainsRegex("^5: rank 0 .*status 5$"));
}

TEST_F(VictimTest, AnotherSessionForgetsIt) {
  server_->on_message(3, Join{.generation = 1}, now_);
  server_->on_message(4, Join{.generation = 1}, now_);
  EXPECT_EQ(server_->generation(), 2U);
  exit(1, 5);
  EXPECT_THAT(end_of(*server_), ContainsRegex("^5: rank 0 .*status 5$"));
  EXPECT_EQ(server_->waits(), "");
}

TEST_F(VictimTest, TheOthersReportAfterTheEndWhatTheyWaitedFor) {
  begin(false);
  add_process(3, 1);
  add_process(4, 2);
  exit(2, 137);
  ASSERT_TRUE(server_->finished());
  EXPECT_EQ(server_->waits(), "");
  server_->on_message(3, RanksMissed{1, {1}, "barrier"}, now_);
  EXPECT_EQ(server_->waits(), "the other ranks waited in barrier");
}

TEST(WaitsTest, NamesRanksThatWaitedInDifferentOperations) {
  Waits waits;
  EXPECT_EQ(waits.in_words(4), "");
  waits.note(3, "");
  EXPECT_EQ(waits.in_words(4), "");
  waits.note(0, "barrier");
  waits.note(2, "barrier");
  EXPECT_EQ(waits.in_words(5), "ranks 0, 2 waited in barrier");
  waits.note(4, "broadcast \"b\"");
  EXPECT_EQ(waits.in_words(5), "ranks 0, 2 waited in barrier; rank 4 waited in broadcast \"b\"");
}

TEST_F(ServerTest, AHostThatIsLostIsNamedWithItsRanks) {
  begin(false);
  add_process(3, 1);
  add_process(4, 2);
  server_->on_close(2, "its connection is closed", now_);
  EXPECT_THAT(end_of(*server_),
              ContainsRegex("^1: the agent on b is lost: its connection is closed; "
                            "with it: rank 1$"));
  begin(false);
  server_->end_by_host("b", 1, "host b: ssh was ended by signal 9", now_);
  EXPECT_THAT(end_of(*server_),
              ContainsRegex("^1: host b: ssh was ended by signal 9; with it: rank 1$"));
}

/// An elastic job of two processes that needs both.
class CrashLoopTest : public ServerTest {
 protected:
  CrashLoopTest() {
    ServerOptions options = options_of(true);
    options.min_np = 2;
    options.max_np = 3;
    options.max_cooldown = options.min_cooldown;
    server_.emplace(options, [] { return std::uint64_t{4}; });
    add_agent(1, "a", 11);
    add_agent(2, "b", 12);
    add_process(3, 1);
  }
  /// The process ends before it connects, and another one is started after the cooldown.
  void crash(ProcessId process) {
    server_->on_message(2, Exited{.process = process, .status = 9, .last_lines = "why"}, now_);
    if (server_->finished()) return;
    now_ += 2s;
    for (const Link agent : {Link{1}, Link{2}, Link{5}})
      server_->on_message(agent, Keepalive{}, now_);
    server_->on_time(now_);
  }
};

TEST_F(CrashLoopTest, EndsAJobThatWaits) {
  for (ProcessId process = 2; process < 6; ++process) crash(process);
  EXPECT_FALSE(server_->finished());
  static_cast<void>(server_->take());
  crash(6);
  const std::vector<Action> actions = server_->take();
  const Finish* const finish = find_finish(actions);
  ASSERT_NE(finish, nullptr);
  EXPECT_EQ(finish->status, 9);
  EXPECT_EQ(finish->last_lines, "why");
  EXPECT_THAT(
      finish->reason,
      ContainsRegex("^5 processes in a row have ended before they reached a session, and the "
                    "job needs 2 ranks; the last one: .* on b.*status 9$"));
}

TEST_F(CrashLoopTest, ASessionEndsTheCount) {
  for (ProcessId process = 2; process < 6; ++process) crash(process);
  add_process(4, 6);
  ASSERT_EQ(server_->generation(), 1U);
  server_->on_close(4, "it is killed", now_);
  crash(6);
  server_->on_message(3, Join{.generation = 1}, now_);
  for (ProcessId process = 7; process < 11; ++process) crash(process);
  EXPECT_FALSE(server_->finished());
  crash(11);
  EXPECT_TRUE(server_->finished());
}

TEST_F(CrashLoopTest, AnotherHostMayHelp) {
  add_agent(5, "c", 13);  // which starts process 3
  crash(2);
  for (ProcessId process = 4; process < 12; ++process) crash(process);
  EXPECT_FALSE(server_->finished());
}

TEST_F(ServerTest, ACrashLoopDoesNotEndASession) {
  server_.emplace(options_of(true), [] { return std::uint64_t{4}; });
  add_agent(1, "a", 11, 2);
  add_process(3, 1);
  add_process(4, 2);
  server_->on_close(4, "it is killed", now_);
  server_->on_message(1, Exited{.process = 2, .status = 9}, now_);
  server_->on_message(3, Join{.generation = 1}, now_);
  ASSERT_EQ(server_->generation(), 2U);
  static_cast<void>(server_->take());
  for (ProcessId process = 3; process < 20; ++process) {
    now_ += 2000s;  // longer than any cooldown
    server_->on_message(1, Keepalive{}, now_);
    EXPECT_THAT(receivers_of<Start>(server_->take()), ElementsAre(1));
    server_->on_message(1, Exited{.process = process, .status = 9}, now_);
  }
  EXPECT_FALSE(server_->finished());
}

TEST_F(ServerTest, AJobStartsAgainUnlessItIsToEnd) {
  struct Case {
    int status;
    int signal;  // 0: none
    bool by_signal;
    bool restarts;
  };
  for (const Case& each : std::vector<Case>{{3, 0, false, true},
                                            {139, 0, false, true},
                                            {143, 0, false, true},  // somebody has ended a rank
                                            {143, 0, true, false},
                                            {127, 0, false, false},
                                            {138, SIGUSR1, false, false},
                                            {3, SIGUSR1, false, true},
                                            {3, SIGTERM, false, false}}) {
    SCOPED_TRACE(fmt::format("status {}, signal {}, by signal {}", each.status, each.signal,
                             each.by_signal));
    ServerOptions options = options_of(false);
    options.max_restarts = 1;
    for (options.restarts = 0; options.restarts < 2; ++options.restarts) {
      server_.emplace(options, [] { return std::uint64_t{4}; });
      add_agent(1, "a", 11);
      add_agent(2, "b", 12);
      add_process(3, 1);
      add_process(4, 2);
      if (each.signal != 0) server_->on_signal(each.signal, now_);
      server_->on_close(3, "it has ended", now_);
      server_->on_message(
          1, Exited{.process = 1, .status = each.status, .by_signal = each.by_signal}, now_);
      const std::vector<Action> actions = server_->take();
      const Finish* const finish = find_finish(actions);
      ASSERT_NE(finish, nullptr);
      EXPECT_EQ(finish->restarts, each.restarts && options.restarts == 0);
    }
  }
}

}  // namespace
}  // namespace kolo::internal::rendezvous
