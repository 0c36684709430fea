// SPDX-License-Identifier: Apache-2.0
// Agents that the server refuses, and ranks that it blames for a stall.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "rendezvous/server/server.hpp"
#include "shake_hands.hpp"

namespace kolo::internal::rendezvous {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

struct Visitor {
  std::string machine{};
  ProcessId number = 0;
  std::string job{};
};

class AdmissionTest : public testing::Test {
 protected:
  void begin(bool elastic, int np) {
    ServerOptions options{.version = "1", .job = "this", .np = np, .elastic = elastic};
    options.min_np = 1;
    options.max_np = np + 2;
    server_.emplace(options, [] { return std::uint64_t{4}; });
  }

  /// The refusal that the agent gets, or none. Its connection is `last_`.
  std::optional<Refusal> add_agent(const Visitor& visitor) {
    server_->on_open(++last_, visitor.machine, now_);
    shake_hands(*server_, last_,
                Hello{.role = Role::agent,
                      .process = visitor.number,
                      .host = visitor.machine,
                      .machine = visitor.machine,
                      .slots = 1,
                      .version = "1",
                      .job = visitor.job},
                now_);
    std::optional<Refusal> refusal;
    for (const Action& action : server_->take()) {
      if (const auto* note = std::get_if<Note>(&action)) notes_ += note->text + '\n';
      if (const auto* send = std::get_if<Send>(&action); send != nullptr && send->link == last_)
        if (const auto* message = std::get_if<Refusal>(send->message.get())) refusal = *message;
    }
    return refusal;
  }

  /// So many ranks, of an agent each: agent r has connection r + 1, and rank r connection
  /// `np` + r + 1.
  void train(int np) {
    begin(true, np);
    for (int rank = 0; rank < np; ++rank) {
      server_->on_open(++last_, "here", now_);
      shake_hands(*server_, last_,
                  Hello{.role = Role::agent, .wanted_rank = rank, .slots = 1, .version = "1"},
                  now_);
    }
    for (int rank = 0; rank < np; ++rank) {
      const auto process = static_cast<ProcessId>(rank + 1);
      server_->on_open(++last_, "here", now_);
      shake_hands(*server_, last_, Hello{.process = process, .version = "1"}, now_);
      server_->on_message(last_, Join{}, now_);
    }
    np_ = np;
    ASSERT_EQ(server_->generation(), 1U);
    static_cast<void>(server_->take());
  }
  [[nodiscard]] Link link_of(int rank) const { return static_cast<Link>(np_ + rank + 1); }
  void report_failure(int rank, std::vector<std::int32_t> ranks) {
    server_->on_message(link_of(rank), FailureReport{1, std::move(ranks), "it stands still", true},
                        now_);
  }
  void join(int rank) { server_->on_message(link_of(rank), Join{.generation = 1}, now_); }
  void pass(Time time) {
    for (int rank = 0; rank < np_; ++rank)
      server_->on_message(static_cast<Link>(rank + 1), Keepalive{}, now_ + time);
    now_ += time;
    server_->on_time(now_);
  }
  /// The ranks that were lost since the last call.
  std::vector<int> lost() {
    std::vector<int> ranks;
    for (const Action& action : server_->take())
      if (const auto* send = std::get_if<Send>(&action))
        if (std::holds_alternative<Kill>(*send->message))
          ranks.push_back(static_cast<int>(std::get<Kill>(*send->message).process) - 1);
    return ranks;
  }

  /// Opens a connection that sends the first step of a handshake, which needs no secret, or
  /// nothing. Returns the connection that is closed for it, or 0.
  Link add_stranger(bool speaks) {
    server_->on_open(++last_, "elsewhere", now_);
    if (speaks) server_->on_message(last_, HandshakeStep{make_client({}).begin()}, now_);
    Link closed = 0;
    for (const Action& action : server_->take())
      if (const auto* close = std::get_if<Close>(&action)) closed = close->link;
    return closed;
  }

  std::optional<Server> server_;
  Time now_{};
  Link last_ = 0;
  int np_ = 0;
  std::string notes_;
};

// Whoever fills the table with connections of one kind closes his own.
TEST_F(AdmissionTest, StrangersOfOneKindDoNotTakeThePlacesOfTheOther) {
  begin(false, 1);
  constexpr int most = 256;
  for (int i = 0; i < most + 100; ++i) static_cast<void>(add_stranger(/*speaks=*/true));
  // A rank connects. It has not said hello yet when others come, of both kinds.
  static_cast<void>(add_stranger(/*speaks=*/false));
  const Link rank = last_;
  std::vector<Link> closed;
  for (int i = 0; i < most / 4; ++i) {
    closed.push_back(add_stranger(/*speaks=*/false));
    closed.push_back(add_stranger(/*speaks=*/true));
  }
  EXPECT_THAT(closed, testing::Not(testing::Contains(rank)));
  EXPECT_THAT(closed, testing::Not(testing::Contains(0U))) << "the table is full";
  // It begins its handshake, and silent ones come.
  server_->on_message(rank, HandshakeStep{make_client({}).begin()}, now_);
  closed.clear();
  for (int i = 0; i < 2 * most; ++i) closed.push_back(add_stranger(/*speaks=*/false));
  EXPECT_THAT(closed, testing::Not(testing::Contains(rank)));
}

TEST_F(AdmissionTest, AJobThatHasBegunTakesNoSecondAgentOfAMachine) {
  begin(false, 2);
  EXPECT_EQ(add_agent({.machine = "a", .number = 1}), std::nullopt);
  EXPECT_EQ(add_agent({.machine = "b", .number = 2}), std::nullopt);
  const auto refusal = add_agent({.machine = "a", .number = 3});
  ASSERT_NE(refusal, std::nullopt);
  EXPECT_THAT(refusal->reason, HasSubstr("this host already takes part"));
  EXPECT_EQ(refusal->retry, 0s);
  // Others only wait; a launcher knows which hosts it wants.
  EXPECT_EQ(add_agent({.machine = "c", .number = 4}), std::nullopt);
  EXPECT_EQ(add_agent({.machine = "", .number = 5}), std::nullopt);
}

TEST_F(AdmissionTest, SeveralAgentsOfAMachineMayBeginAJob) {
  begin(true, 3);
  EXPECT_EQ(add_agent({.machine = "a", .number = 1}), std::nullopt);
  EXPECT_EQ(add_agent({.machine = "a", .number = 2}), std::nullopt);
  EXPECT_EQ(add_agent({.machine = "b", .number = 3}), std::nullopt);
  EXPECT_NE(add_agent({.machine = "a", .number = 4}), std::nullopt);
  // Each may be started again.
  server_->on_close(2, "it is killed", now_);
  EXPECT_EQ(add_agent({.machine = "a", .number = 5}), std::nullopt);
  EXPECT_NE(add_agent({.machine = "a", .number = 6}), std::nullopt);
}

TEST_F(AdmissionTest, AHostMayReturnToAnElasticJob) {
  begin(true, 1);
  EXPECT_EQ(add_agent({.machine = "a", .number = 1}), std::nullopt);
  EXPECT_EQ(add_agent({.machine = "b", .number = 2}), std::nullopt);
  // By itself.
  EXPECT_EQ(add_agent({.machine = "b", .number = 2}), std::nullopt);
  // With another process, while the old one has been cut off, and is not lost yet.
  const auto refusal = add_agent({.machine = "b", .number = 3});
  ASSERT_NE(refusal, std::nullopt);
  const Time lease = ServerOptions{}.lease;
  EXPECT_GT(refusal->retry, lease);
  notes_.clear();
  server_->on_message(1, Keepalive{}, lease - 1ns);
  now_ = lease;
  server_->on_time(now_);
  EXPECT_EQ(add_agent({.machine = "b", .number = 3}), std::nullopt);
}

TEST_F(AdmissionTest, WhoIsToTryAgainIsMentionedOnce) {
  begin(true, 1);
  EXPECT_EQ(add_agent({.machine = "a", .number = 1}), std::nullopt);
  EXPECT_NE(add_agent({.machine = "a", .number = 2}), std::nullopt);
  EXPECT_THAT(notes_, HasSubstr("refused: this host already takes part"));
  notes_.clear();
  EXPECT_NE(add_agent({.machine = "a", .number = 2}), std::nullopt);
  EXPECT_EQ(notes_, "");
}

TEST_F(AdmissionTest, AnAgentOfAnotherJobIsRefused) {
  begin(true, 2);
  EXPECT_EQ(add_agent({.machine = "a", .number = 1, .job = "this"}), std::nullopt);
  const auto refusal = add_agent({.machine = "b", .number = 2, .job = "that"});
  ASSERT_NE(refusal, std::nullopt);
  EXPECT_THAT(refusal->reason,
              HasSubstr("this server runs job this, but the agent belongs to job that"));
  EXPECT_EQ(refusal->retry, 0s);
}

TEST_F(AdmissionTest, AfterTheEndAgentsAreToTryAgain) {
  begin(true, 1);
  EXPECT_EQ(add_agent({.machine = "a", .number = 1, .job = "this"}), std::nullopt);
  server_->end(0, "", now_);
  const auto refusal = add_agent({.machine = "b", .number = 2, .job = "that"});
  ASSERT_NE(refusal, std::nullopt);
  EXPECT_EQ(refusal->reason, "the job is over");
  EXPECT_GT(refusal->retry, 1h);
}

// 2 and 3 wait for 0, which waits for 1: it is stopped, and says nothing.
TEST_F(AdmissionTest, TheEndOfAChainIsToBlame) {
  train(4);
  report_failure(2, {0});
  report_failure(3, {0});
  join(2);
  join(3);
  EXPECT_THAT(lost(), IsEmpty());
  pass(1s);
  report_failure(0, {1});
  join(0);
  EXPECT_THAT(lost(), IsEmpty());
  pass(1s);
  EXPECT_THAT(lost(), ElementsAre(1));
  EXPECT_EQ(server_->generation(), 2U);
}

TEST_F(AdmissionTest, AllThatSayNothingAreToBlame) {
  train(4);
  report_failure(2, {0, 1});
  report_failure(3, {1});
  EXPECT_EQ(server_->next_time(), now_ + 2s);
  pass(2s);
  EXPECT_THAT(lost(), ElementsAre(0, 1));
}

TEST_F(AdmissionTest, ARankThatComesAndWaitsForNobodyIsToBlameIfAllOthersWait) {
  train(3);
  report_failure(0, {1});
  join(0);
  report_failure(1, {2});
  join(1);
  join(2);
  EXPECT_THAT(lost(), ElementsAre(2));
}

TEST_F(AdmissionTest, OneOfThoseThatWaitForEachOtherIsToBlame) {
  train(3);
  report_failure(0, {1});
  report_failure(1, {2});
  report_failure(2, {0, 1});
  pass(2s);
  EXPECT_THAT(lost(), ElementsAre(1));  // two wait for it
  join(0);
  join(2);
  EXPECT_EQ(server_->generation(), 2U);
}

TEST_F(AdmissionTest, OfTwoThatWaitForEachOtherTheNewerIsToBlame) {
  train(2);
  report_failure(0, {1});
  report_failure(1, {0});
  join(0);
  join(1);
  EXPECT_THAT(lost(), ElementsAre(1));
}

TEST_F(AdmissionTest, WhereARankIsLostAnywayOnlyThoseThatSayNothingAreToBlame) {
  train(4);
  report_failure(0, {1});
  report_failure(1, {0});
  server_->on_close(link_of(3), "it is killed", now_);
  static_cast<void>(server_->take());
  pass(2s);
  EXPECT_THAT(lost(), IsEmpty());
}

TEST_F(AdmissionTest, AMemberThatHasCompletedIsNotToBlame) {
  train(2);
  server_->on_message(link_of(0), Completed{1}, now_);
  report_failure(1, {0});
  pass(2s);
  EXPECT_THAT(lost(), IsEmpty());
}

}  // namespace
}  // namespace kolo::internal::rendezvous
