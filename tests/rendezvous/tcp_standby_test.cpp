// SPDX-License-Identifier: Apache-2.0
// A process and its connection to the standby.
#include <gtest/gtest.h>

#include <atomic>
#include <optional>
#include <thread>
#include <utility>

#include "tcp_servers.hpp"

namespace kolo::internal::rendezvous {
namespace {

/// The addresses of a server and its standby, which a test plays.
class TwoServers {
 public:
  TwoServers()
      : first_(std::move(transport::listen_at({"127.0.0.1", 0}).front())),
        second_(std::move(transport::listen_at({"127.0.0.1", 0}).front())) {}

  MessageStream admit_first(bool elastic) {
    MessageStream server = accept_client(first_);
    static_cast<void>(admit(server));
    server.send(Welcome{10s, 1, elastic});
    return server;
  }
  MessageStream admit_second() {
    MessageStream standby = accept_client(second_);
    EXPECT_EQ(admit(standby).role, Role::process);
    return standby;
  }
  [[nodiscard]] ClientOptions options() const {
    return {.server = {"127.0.0.1", transport::address_of(first_.get()).port},
            .standby = transport::Endpoint{"127.0.0.1", transport::address_of(second_.get()).port},
            .secret = make_secret(),
            .version = "1",
            .connect_timeout = 20s};
  }

 private:
  node::FileDescriptor first_;
  node::FileDescriptor second_;
};

TEST(TcpStandby, ALostConnectionToItIsMadeAgain) {
  TwoServers servers;
  std::thread both([&] {
    std::optional<MessageStream> server = servers.admit_first(true);
    { const MessageStream reset = servers.admit_second(); }
    MessageStream standby = servers.admit_second();
    static_cast<void>(receive<Join>(*server));
    server.reset();
    standby.send(Succession{"the first one is lost"});
    EXPECT_EQ(receive<Join>(standby).commit, 5U);
    standby.send(Roster{1, {Member{.process = 1}}});
    static_cast<void>(receive<Leave>(standby));
  });
  TcpRendezvous client(servers.options());
  EXPECT_EQ(client.join(5).generation, 1U);
  client.leave();
  both.join();
}

TEST(TcpStandby, TheServerThatAProcessLeavesLearnsOfIt) {
  TwoServers servers;
  std::thread both([&] {
    MessageStream server = servers.admit_first(true);
    MessageStream standby = servers.admit_second();
    static_cast<void>(receive<Join>(server));
    standby.send(Succession{"the first one is lost"});
    EXPECT_EQ(receive<Succession>(server).reason, "the first one is lost");
    static_cast<void>(receive<Join>(standby));
    standby.send(Roster{1, {Member{.process = 1}}});
    static_cast<void>(receive<Leave>(standby));
  });
  TcpRendezvous client(servers.options());
  client.join();
  client.leave();
  both.join();
}

// Otherwise the process would end although the standby, which rules, has its host.
TEST(TcpStandby, TheEndOfASupersededServerIsNotThatOfTheJob) {
  TwoServers servers;
  std::atomic<bool> has_heard = false;
  std::thread both([&] {
    MessageStream server = servers.admit_first(true);
    MessageStream standby = servers.admit_second();
    server.send(End{.status = 1, .reason = "superseded", .superseded = true});
    server.write();
    while (!has_heard) std::this_thread::yield();
    standby.send(Succession{"the first one is lost"});
    static_cast<void>(receive<Join>(standby));
    standby.send(Roster{1, {Member{.process = 1}}});
    static_cast<void>(receive<Leave>(standby));
  });
  TcpRendezvous client(servers.options());
  while (client.why_closed().empty() && !client.interrupted()) std::this_thread::yield();
  has_heard = true;
  EXPECT_EQ(client.join().generation, 1U);
  client.leave();
  both.join();
}

}  // namespace
}  // namespace kolo::internal::rendezvous
