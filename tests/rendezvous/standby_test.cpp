// SPDX-License-Identifier: Apache-2.0
// A standby takes over from a lost server by the votes of the agents, and two servers never both
// rule.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <string>
#include <vector>

#include "rendezvous/server/take_over.hpp"
#include "standby_fixture.hpp"

namespace kolo::internal::rendezvous {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

TEST(Quorum, TwoServersNeverBothHaveOne) {
  for (unsigned all = 1; all <= 7; ++all) {
    Electorate electorate{.server = 1, .standby = all};
    for (ProcessId voter = 1; voter <= all; ++voter) electorate.voters.push_back(voter);
    for (unsigned set = 0; set < 1U << all; ++set) {
      const auto in = [&](ProcessId voter) { return (set >> (voter - 1) & 1U) != 0; };
      const auto out = [&](ProcessId voter) { return !in(voter); };
      EXPECT_FALSE(is_quorum(electorate, in) && is_quorum(electorate, out)) << all << ' ' << set;
      if (2 * std::popcount(set) > static_cast<int>(all)) {
        EXPECT_TRUE(is_quorum(electorate, in)) << all << ' ' << set;
      }
    }
  }
}

TEST_F(StandbyTest, TheAgentsLearnWhoMayVote) {
  begin_first();
  EXPECT_THAT(receivers_of<Electorate>(server_->take()), ElementsAre(1, 2, 3));
}

TEST_F(StandbyTest, AJobThatEndsWithTheRanksOfItsServerHasNoStandby) {
  begin_first(/*elastic=*/false);
  EXPECT_THAT(receivers_of<Electorate>(server_->take()), IsEmpty());
}

TEST_F(StandbyTest, AServerThatLosesHalfOfItsHostsEnds) {
  begin_first();
  begin_session();
  server_->on_close(3, "its connection is closed", now_);
  EXPECT_FALSE(server_->finished());
  server_->on_close(2, "its connection is closed", now_);
  EXPECT_THAT(end_of(*server_), HasSubstr("1: this server has lost half of the job's 3 hosts"));
}

TEST_F(StandbyTest, AHostThatHasLeftDoesNotVote) {
  begin_first();
  begin_session();
  server_->on_message(3, Removal{"a signal"}, now_);
  server_->on_close(3, "its connection is closed", now_);
  server_->on_close(13, "its connection is closed", now_);
  server_->on_close(2, "its connection is closed", now_);
  EXPECT_FALSE(server_->finished());
}

TEST_F(StandbyTest, AServerThatMayBeSupersededBeginsNoSession) {
  begin_first();
  begin_session();
  now_ += 6s;  // more than half of the lease
  server_->on_message(1, Keepalive{}, now_);
  server_->on_close(13, "its connection is closed", now_);
  for (const Link link : {11U, 12U}) server_->on_message(link, Join{1, 1, false}, now_);
  EXPECT_THAT(receivers_of<Roster>(server_->take()), IsEmpty());
  server_->on_message(2, Keepalive{}, now_);
  EXPECT_THAT(receivers_of<Roster>(server_->take()), ElementsAre(11, 12));
}

TEST_F(StandbyTest, TheStandbyWaitsForEnoughVotes) {
  begin_standby();
  vote(2, {});
  EXPECT_THAT(receivers_of<Succession>(server_->take()), IsEmpty());
  pass(60s);
  EXPECT_THAT(receivers_of<Welcome>(server_->take()), IsEmpty());
  // An agent that gives up takes its vote along.
  server_->on_close(2, "it gave up", now_);
  vote(3, {});
  EXPECT_THAT(receivers_of<Succession>(server_->take()), IsEmpty());
  EXPECT_EQ(server_->generation(), 0U);
}

TEST_F(StandbyTest, ItRefusesAgentsWithoutAVoteAndThoseOfOtherJobs) {
  begin_standby();
  come(5, agent(3));
  EXPECT_THAT(receivers_of<Refusal>(server_->take()), ElementsAre(5));
  vote(3, {}, 0, "another job");
  EXPECT_THAT(receivers_of<Refusal>(server_->take()), ElementsAre(3));
}

TEST_F(StandbyTest, ItTellsAHostThatWouldServeOfTheJobThatItGuards) {
  const auto guards = [&] {
    for (const Action& action : server_->take())
      if (const auto* const send = std::get_if<Send>(&action))
        if (const auto* const refusal = std::get_if<Refusal>(send->message.get()))
          return refusal->guards_job;
    return false;
  };
  begin_standby();
  come(5, agent(1));
  EXPECT_TRUE(guards());
  for (const Link link : {12U, 13U}) server_->on_close(link, "it has ended", now_);
  come(6, agent(1));
  EXPECT_FALSE(guards());
  vote(3, {});
  come(7, agent(1));
  EXPECT_TRUE(guards());
}

TEST_F(StandbyTest, TheServersOwnAgentMayComeLast) {
  ServerOptions wanting = options(/*elastic=*/true);
  wanting.wants_standby = true;
  wanting.np = 2;
  server_.emplace(wanting, [] { return std::uint64_t{4}; });
  for (const int host : {2, 3}) come(static_cast<Link>(host), agent(host));
  EXPECT_THAT(receivers_of<Start>(server_->take()), IsEmpty());
  come(1, agent(1));
  EXPECT_THAT(receivers_of<Electorate>(server_->take()), ElementsAre(1, 2, 3));
}

TEST_F(StandbyTest, TheHostOfTheStandbyMayComeLast) {
  ServerOptions wanting = options(/*elastic=*/true);
  wanting.wants_standby = true;
  wanting.np = 2;
  server_.emplace(wanting, [] { return std::uint64_t{4}; });
  for (const int host : {1, 3}) come(static_cast<Link>(host), agent(host));
  EXPECT_THAT(receivers_of<Start>(server_->take()), IsEmpty());
  come(2, agent(2));
  EXPECT_THAT(receivers_of<Electorate>(server_->take()), ElementsAre(1, 2, 3));
}

TEST_F(StandbyTest, TheServerSaysIfNobodyStandsBy) {
  ServerOptions wanting = options(/*elastic=*/true);
  wanting.wants_standby = true;
  wanting.np = 1;
  wanting.lease = 1h;
  server_.emplace(wanting, [] { return std::uint64_t{4}; });
  come(1, agent(1));
  EXPECT_THAT(receivers_of<Start>(server_->take()), IsEmpty());
  pass(patience_for_hosts);
  EXPECT_THAT(notes(server_->take()), HasSubstr("the host of the standby is missing"));
  EXPECT_EQ(server_->next_time(), patience_for_standby);
  pass(patience_for_standby - now_);
  const std::vector<Action> actions = server_->take();
  EXPECT_THAT(receivers_of<Start>(actions), ElementsAre(1));
  EXPECT_THAT(notes(actions), HasSubstr("no host of the first session stands by"));
}

TEST_F(StandbyTest, ItContinuesTheSessionWithoutTheHostOfAServerThatHasEnded) {
  begin_standby();
  vote(2, {});
  vote(3, {});
  const std::vector<Action> actions = server_->take();
  EXPECT_THAT(receivers_of<Welcome>(actions), UnorderedElementsAre(2, 3));
  EXPECT_THAT(receivers_of<Succession>(actions), UnorderedElementsAre(12, 13));
  stand(2);
  EXPECT_EQ(server_->generation(), 0U);
  stand(3);
  EXPECT_EQ(server_->generation(), 1U);
  EXPECT_THAT(receivers_of<Interruption>(server_->take()), ElementsAre(12, 13));
  for (const Link link : {12U, 13U}) server_->on_message(link, Join{1, 7, false}, now_);
  EXPECT_THAT(receivers_of<Roster>(server_->take()), ElementsAre(12, 13));
  EXPECT_EQ(server_->generation(), 2U);
}

TEST_F(StandbyTest, ItWaitsUntilAServerThatIsCutOffHasEnded) {
  begin_standby();
  vote(2, 5s);
  vote(3, 6s);
  stand(2);
  stand(3);
  pass(7400ms);  // 12.5 s after the server was heard last, a quarter more than the lease
  EXPECT_EQ(server_->generation(), 0U);
  EXPECT_EQ(server_->next_time(), now_ + 100ms);
  pass(100ms);
  EXPECT_EQ(server_->generation(), 1U);
  EXPECT_THAT(receivers_of<Interruption>(server_->take()), ElementsAre(12, 13));
  vote(1, 9s);
  EXPECT_THAT(receivers_of<Refusal>(server_->take()), ElementsAre(1));
}

TEST_F(StandbyTest, ASessionGoesOnIfNoRankIsLost) {
  begin_standby(/*elastic=*/false);
  vote(2, {});
  vote(3, {});
  for (const ProcessId process : {2U, 3U})
    server_->on_message(process + 10, Standing{1, 1, {2, 3}, false}, now_);
  EXPECT_EQ(server_->generation(), 1U);
  EXPECT_THAT(receivers_of<Interruption>(server_->take()), IsEmpty());
  EXPECT_FALSE(server_->finished());
  for (const ProcessId process : {2U, 3U}) {
    server_->on_message(process + 10, Leave{1}, now_);
    server_->on_message(process, Exited{process, 0}, now_);
    server_->on_close(process + 10, "it has ended", now_);
  }
  EXPECT_EQ(end_of(*server_), "0: ");
}

TEST_F(StandbyTest, AJobDoesNotStartAgainAfterAChangeOfServers) {
  restarts_ = 1;
  begin_standby(/*elastic=*/false);
  vote(2, {});
  vote(3, {});
  for (const ProcessId process : {2U, 3U})
    server_->on_message(process + 10, Standing{1, 1, {2, 3}, false}, now_);
  server_->on_message(3, Exited{3, 7}, now_);
  server_->on_close(13, "it has ended", now_);
  const std::vector<Action> actions = server_->take();
  const Finish* const finish = find_finish(actions);
  ASSERT_NE(finish, nullptr);
  EXPECT_EQ(finish->status, 7);
  EXPECT_FALSE(finish->restarts);
}

TEST_F(StandbyTest, AJobThatIsNotElasticEndsIfRanksAreLost) {
  begin_standby(/*elastic=*/false);
  vote(2, {});
  vote(3, {});
  stand(2);
  stand(3);
  EXPECT_THAT(end_of(*server_), HasSubstr("1: rank 0 (number 1) is lost: the first rendezvous "
                                          "server is lost"));
}

TEST_F(StandbyTest, AProcessThatHasNotHeardOfTheNewestSessionJoinsTheNext) {
  begin_standby();
  vote(2, {});
  vote(3, {});
  // Rank 2 still waits for generation 2, of which the lost server has told only rank 1.
  server_->on_message(13, Standing{1, 1, {1, 2, 3}, false}, now_);
  server_->on_message(13, Join{1, 4, false}, now_);
  server_->on_message(12, Standing{2, 1, {2, 3}, false}, now_);
  EXPECT_EQ(server_->generation(), 2U);
  EXPECT_THAT(receivers_of<Interruption>(server_->take()), ElementsAre(12));
  server_->on_message(12, Join{2, 4, false}, now_);
  EXPECT_THAT(receivers_of<Roster>(server_->take()), ElementsAre(12, 13));
}

TEST_F(StandbyTest, ProcessesThatEndMeanwhileHaveEndedTheJob) {
  for (const int status : {0, 3}) {
    begin_standby();
    vote(2, {}, /*slot=*/-1);
    vote(3, {});
    // One has ended before the vote, and the other before it could say where it stood.
    server_->on_close(13, "it has ended", now_);
    EXPECT_EQ(server_->generation(), 0U);
    server_->on_message(3, Exited{3, status}, now_);
    server_->on_message(2, Exited{2, status}, now_);
    EXPECT_THAT(end_of(*server_), HasSubstr(status == 0 ? "0: " : "3: "));
  }
}

}  // namespace
}  // namespace kolo::internal::rendezvous
