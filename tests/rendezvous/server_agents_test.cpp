// SPDX-License-Identifier: Apache-2.0
// The server tells a launcher which agents there are, and how many slots the job lacks.
#include <gmock/gmock.h>

#include <csignal>

#include "server_fixture.hpp"

namespace kolo::internal::rendezvous {
namespace {

using namespace std::chrono_literals;

class ServerAgents : public ServerTest {
 protected:
  /// The last of the changes that the server has told since the last call; none if there were none.
  std::optional<AgentsChanged> told() {
    std::optional<AgentsChanged> last;
    for (const Action& action : server_->take())
      if (const auto* changed = std::get_if<AgentsChanged>(&action)) last = *changed;
    return last;
  }

  static AgentsChanged agents(std::vector<ProcessId> numbers, int missing_slots) {
    return {.agents = std::move(numbers), .missing_slots = missing_slots};
  }

  /// A job of one to four processes with one agent, "c" of two slots.
  void begin_with_room() {
    ServerOptions options = options_of(true);
    options.max_np = 4;
    options.lease = 1h;
    server_.emplace(options, [] { return std::uint64_t{4}; });
    add_agent(1, "c", 13, 2);
    add_process(3, 1);
    add_process(4, 2);
  }
};

TEST_F(ServerAgents, AreToldWithTheSlotsThatTheJobLacks) {
  begin_with_room();
  EXPECT_EQ(told(), agents({13}, 2));
  add_agent(2, "a", 11);
  EXPECT_EQ(told(), agents({11, 13}, 1));
  server_->on_message(2, Keepalive{}, now_);
  EXPECT_EQ(told(), std::nullopt);
  add_agent(5, "b", 12, 8);
  EXPECT_EQ(told(), agents({11, 12, 13}, 0));
}

TEST_F(ServerAgents, ThatAreLostLeaveTheirSlots) {
  begin(true);
  EXPECT_EQ(told(), agents({11, 12}, 0));
  add_process(3, 1);
  add_process(4, 2);
  server_->on_close(2, "it is cut off", now_);
  EXPECT_EQ(told(), agents({11}, 1));
}

// Another host can take the process over sooner.
TEST_F(ServerAgents, LackTheFreeSlotsOfAHostInItsCooldown) {
  begin_with_room();
  static_cast<void>(told());
  server_->on_close(4, "it has ended", now_);
  server_->on_message(1, Exited{.process = 2, .status = 1}, now_);
  EXPECT_EQ(told(), agents({13}, 3));
  now_ += options_of(true).min_cooldown;
  server_->on_time(now_);
  EXPECT_EQ(told(), agents({13}, 2));
}

// The end of a process may be reported before its connection closes, which shows that it has
// failed.
TEST_F(ServerAgents, StartNothingBeforeTheCooldownOfAProcessThatEnds) {
  begin_with_room();
  static_cast<void>(server_->take());
  server_->on_message(1, Exited{.process = 2, .status = 1}, now_);
  EXPECT_THAT(receivers_of<Start>(server_->take()), testing::IsEmpty());
  server_->on_close(4, "it has ended", now_);
  EXPECT_THAT(receivers_of<Start>(server_->take()), testing::IsEmpty());
  now_ += options_of(true).min_cooldown;
  server_->on_time(now_);
  EXPECT_THAT(receivers_of<Start>(server_->take()), testing::ElementsAre(1));
}

TEST_F(ServerAgents, OfHostsThatLeaveCountNoMore) {
  begin(true);
  add_process(3, 1);
  add_process(4, 2);
  static_cast<void>(told());
  server_->remove_host("b", "somebody wants it", now_);
  EXPECT_EQ(told(), agents({11}, 1));
  server_->keep_host("b", now_);
  EXPECT_EQ(told(), agents({11, 12}, 0));
}

TEST_F(ServerAgents, LackNothingOnceTheJobStartsNoProcesses) {
  begin(true);
  add_process(3, 1);
  add_process(4, 2);
  server_->on_signal(SIGTERM, now_);
  server_->on_close(2, "it is cut off", now_);
  EXPECT_EQ(told(), agents({11}, 0));
}

TEST_F(ServerAgents, OfAJobThatIsNotElasticLackItsProcesses) {
  server_.emplace(options_of(false), [] { return std::uint64_t{4}; });
  add_agent(1, "a", 11);
  EXPECT_EQ(told(), agents({11}, 1));
  add_agent(2, "b", 12);
  EXPECT_EQ(told(), agents({11, 12}, 0));
}

}  // namespace
}  // namespace kolo::internal::rendezvous
