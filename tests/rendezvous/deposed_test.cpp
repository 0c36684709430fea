// SPDX-License-Identifier: Apache-2.0
// A server whose standby has taken over notices it, and the standby notices who is late.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <vector>

#include "standby_fixture.hpp"

namespace kolo::internal::rendezvous {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

class DeposedServer : public StandbyTest {
 protected:
  /// Two ranks want a new session without the third, whose process has ended.
  void lose_third_rank() {
    server_->on_close(13, "its connection is closed", now_);
    for (const Link link : {11U, 12U}) server_->on_message(link, Join{1, 1, false}, now_);
  }
  /// Whether each end that was sent says that only the server ends.
  static std::vector<bool> ends(const std::vector<Action>& actions) {
    std::vector<bool> superseded;
    for (const Action& action : actions)
      if (const auto* const send = std::get_if<Send>(&action))
        if (const auto* const end = std::get_if<End>(send->message.get()))
          superseded.push_back(end->superseded);
    return superseded;
  }
};

// The votes may have been given while the server was suspended, and what the agents had sent before
// would look new.
TEST_F(DeposedServer, BeginsNoSessionAfterASuspensionUntilItsAgentsAnswer) {
  begin_first();
  begin_session();
  server_->on_suspension();
  EXPECT_THAT(receivers_of<Keepalive>(server_->take()), ElementsAre(1, 2, 3));
  for (const Link link : {1U, 2U, 3U}) server_->on_message(link, Keepalive{}, now_);
  lose_third_rank();
  server_->on_message(1, Keepalive{1}, now_);
  EXPECT_THAT(receivers_of<Roster>(server_->take()), IsEmpty());
  server_->on_message(2, Keepalive{1}, now_);
  EXPECT_THAT(receivers_of<Roster>(server_->take()), ElementsAre(11, 12));
}

TEST_F(DeposedServer, BelievesNoAnswerFromBeforeTheLastSuspension) {
  begin_first();
  begin_session();
  server_->on_suspension();
  server_->on_suspension();
  for (const Link link : {1U, 2U, 3U}) server_->on_message(link, Keepalive{1}, now_);
  lose_third_rank();
  EXPECT_THAT(receivers_of<Roster>(server_->take()), IsEmpty());
  for (const Link link : {1U, 2U, 3U}) server_->on_message(link, Keepalive{2}, now_);
  EXPECT_THAT(receivers_of<Roster>(server_->take()), ElementsAre(11, 12));
}

TEST_F(DeposedServer, AsksNobodyIfThereIsNoStandby) {
  begin_first(/*elastic=*/false);
  static_cast<void>(server_->take());
  server_->on_suspension();
  EXPECT_THAT(receivers_of<Keepalive>(server_->take()), IsEmpty());
}

TEST_F(DeposedServer, EndsWithoutTheJobOnceAProcessHasLeftForTheStandby) {
  begin_first();
  begin_session();
  server_->on_message(13, Succession{"the first one is lost"}, now_);
  const std::vector<Action> actions = server_->take();
  ASSERT_NE(find_finish(actions), nullptr);
  EXPECT_THAT(find_finish(actions)->reason, HasSubstr("the standby, which has taken over"));
  EXPECT_THAT(ends(actions), testing::Each(true));
  EXPECT_FALSE(ends(actions).empty());
}

TEST_F(DeposedServer, SaysThatItIsSupersededIfItMayBe) {
  begin_first();
  begin_session();
  for (const Link link : {3U, 2U}) server_->on_close(link, "its connection is closed", now_);
  EXPECT_THAT(ends(server_->take()), testing::AllOf(testing::Each(true), testing::Not(IsEmpty())));
}

TEST_F(DeposedServer, SaysNothingOfTheKindIfTheJobEnds) {
  begin_first();
  begin_session();
  server_->end(3, "somebody wants it", now_);
  EXPECT_THAT(ends(server_->take()), testing::AllOf(testing::Each(false), testing::Not(IsEmpty())));
}

// ---- the standby ----

TEST_F(StandbyTest, ItSaysThatItRulesBeforeAnybodyElseLearnsOfIt) {
  begin_standby();
  vote(2, {});
  vote(3, {});
  const std::vector<Action> actions = server_->take();
  const auto rules = std::ranges::find_if(
      actions, [](const Action& action) { return std::holds_alternative<Ruling>(action); });
  ASSERT_NE(rules, actions.end());
  EXPECT_THAT(receivers_of<Succession>({actions.begin(), rules}), IsEmpty());
  EXPECT_THAT(receivers_of<Succession>({rules, actions.end()}), UnorderedElementsAre(12, 13));
}

// Two agents have seen the end of a server that a third one hears: it has not ended.
TEST_F(StandbyTest, AVoteAfterItRulesMayMakeItWaitLonger) {
  begin_standby();
  vote(2, {});
  vote(3, {});
  EXPECT_EQ(server_->next_time(), now_ + 10s);
  pass(9s);
  vote(1, 1s);
  EXPECT_EQ(server_->next_time(), now_ - 1s + 12500ms);
}

TEST_F(StandbyTest, AProcessThatComesAgainTakesThePlaceOfItsEarlierConnection) {
  begin_standby();
  come(22, {.process = 2, .host = "host", .pid = 100, .version = "1"});
  vote(2, {});
  vote(3, {});
  EXPECT_THAT(receivers_of<Succession>(server_->take()), UnorderedElementsAre(13, 22));
  server_->on_close(12, "it was reset", now_);
  server_->on_message(22, Standing{1, 1, {1, 2, 3}, false}, now_);
  stand(3);
  EXPECT_EQ(server_->generation(), 1U);
}

TEST_F(StandbyTest, ItSaysIfProcessesHaveNotReachedIt) {
  begin_standby();
  vote(2, {});
  vote(3, {});
  pass(10s);
  EXPECT_THAT(end_of(*server_), HasSubstr("1: the first rendezvous server is lost, and none of the "
                                          "2 processes on the other hosts has reached this one"));
}

TEST_F(StandbyTest, ASignalToEndWaitsForTheProcesses) {
  begin_standby();
  vote(2, {});
  vote(3, {});
  server_->on_signal(SIGTERM, now_);
  stand(2);
  EXPECT_FALSE(server_->finished());
  stand(3);
  EXPECT_FALSE(server_->finished());
  EXPECT_THAT(receivers_of<Signal>(server_->take()), UnorderedElementsAre(2, 3));
}

TEST_F(StandbyTest, ASecondSignalToEndDoesNotWait) {
  begin_standby();
  vote(2, {});
  vote(3, {});
  for (int i = 0; i < 2; ++i) server_->on_signal(SIGTERM, now_);
  EXPECT_THAT(end_of(*server_), HasSubstr("143: "));
}

}  // namespace
}  // namespace kolo::internal::rendezvous
