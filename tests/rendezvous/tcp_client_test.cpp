// SPDX-License-Identifier: Apache-2.0
// A client on TCP, with a server that the test plays.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <functional>
#include <thread>

#include "kolo/error.hpp"
#include "tcp_servers.hpp"

namespace kolo::internal::rendezvous {
namespace {

using testing::HasSubstr;

/// Whether a client goes on after an answer to its first message (none: null) and a welcome.
bool trusts(const std::function<Bytes(const Bytes&)>& answer, bool& has_proved) {
  const node::FileDescriptor listener = std::move(transport::listen_at({"127.0.0.1", 0}).front());
  std::thread impostor([&] {
    MessageStream client = accept_client(listener);
    const Bytes first = receive<HandshakeStep>(client).bytes;
    if (answer) client.send(HandshakeStep{answer(first)});
    client.send(Welcome{1s, 1, false});
    has_proved = !receive<HandshakeStep>(client).bytes.empty();
  });
  bool trusted = true;
  try {
    const TcpRendezvous client({.server = {"127.0.0.1", transport::address_of(listener.get()).port},
                                .secret = make_secret(),
                                .version = "1",
                                .connect_timeout = 20s,
                                .call_again_for = 0s});
  } catch (const BackendError&) {
    trusted = false;
  }
  impostor.join();
  return trusted;
}

TEST(TcpRendezvousClient, DoesNotTrustWhoeverAnswers) {
  bool has_proved = false;
  EXPECT_FALSE(trusts(nullptr, has_proved));
  EXPECT_FALSE(has_proved);
  EXPECT_FALSE(
      trusts([](const Bytes&) { return Bytes(transport::Handshake::welcome_bytes); }, has_proved));
  EXPECT_FALSE(has_proved);
  EXPECT_FALSE(
      trusts([](const Bytes& first) { return make_server({}).answer(first).value(); }, has_proved));
  EXPECT_FALSE(has_proved);
  // The welcome of another handshake.
  EXPECT_FALSE(trusts(
      [](const Bytes&) {
        const transport::Handshake other = make_client(make_secret());
        return make_server(make_secret()).answer(other.begin()).value();
      },
      has_proved));
  EXPECT_FALSE(has_proved);
  // A right welcome, but the next message has no tag.
  EXPECT_FALSE(
      trusts([](const Bytes& first) { return make_server(make_secret()).answer(first).value(); },
             has_proved));
  EXPECT_TRUE(has_proved);
}

/// The error of a client whose server does this.
std::string error_with(const std::function<void(MessageStream&)>& serve) {
  const node::FileDescriptor listener = std::move(transport::listen_at({"127.0.0.1", 0}).front());
  std::thread server([&] {
    MessageStream client = accept_client(listener);
    serve(client);
    client.write();
  });
  std::string what;
  try {
    TcpRendezvous client({.server = {"127.0.0.1", transport::address_of(listener.get()).port},
                          .secret = make_secret(),
                          .version = "1",
                          .connect_timeout = 20s,
                          .call_again_for = 0s,
                          .call_timeout = 20s});
    client.join();
  } catch (const std::exception& error) {
    what = error.what();
  }
  server.join();
  return what;
}

// A server that is flooded by strangers drops those who have not proved anything yet.
TEST(TcpRendezvousClient, CallsAServerAgainThatHangsUpBeforeItsWelcome) {
  const node::FileDescriptor listener = std::move(transport::listen_at({"127.0.0.1", 0}).front());
  std::thread server([&] {
    { const MessageStream dropped_at_once = accept_client(listener); }
    {
      MessageStream dropped = accept_client(listener);
      static_cast<void>(receive<HandshakeStep>(dropped));
    }
    {
      MessageStream dropped_after_its_hello = accept_client(listener);
      static_cast<void>(admit(dropped_after_its_hello));
    }
    MessageStream client = accept_client(listener);
    static_cast<void>(admit(client));
    client.send(Welcome{1s, 7, false});
    while (!client.closed()) {
      client.write();
      client.read([](const Message&) { return true; });
      std::this_thread::yield();
    }
  });
  EXPECT_NO_THROW(
      TcpRendezvous({.server = {"127.0.0.1", transport::address_of(listener.get()).port},
                     .secret = make_secret(),
                     .version = "1",
                     .connect_timeout = 20s}));
  server.join();
}

// The time in which the other side is silent before it hangs up counts, too.
TEST(TcpRendezvousClient, DoesNotCallForLongWhoHangsUpSlowly) {
  const node::FileDescriptor listener = std::move(transport::listen_at({"127.0.0.1", 0}).front());
  std::atomic<bool> over{false};
  int calls = 0;
  std::thread other_program([&] {
    while (!over) {
      if (const node::FileDescriptor call = transport::accept_connection(listener.get());
          call.valid()) {
        ++calls;
        std::this_thread::sleep_for(1s);  // what is tested: this program is slow
      }
      std::this_thread::sleep_for(1ms);
    }
  });
  try {
    TcpRendezvous({.server = {"127.0.0.1", transport::address_of(listener.get()).port},
                   .secret = make_secret(),
                   .version = "1",
                   .connect_timeout = 20s,
                   .call_again_for = 1s});
    ADD_FAILURE() << "it was taken for a server";
  } catch (const BackendError& error) {
    EXPECT_THAT(error.what(), HasSubstr("if another program listens there, use another port"));
  }
  over = true;
  other_program.join();
  EXPECT_LE(calls, 3) << "more than 2 s";
}

TEST(TcpRendezvousClient, IsNotEndedByWhoHasProvedNothing) {
  EXPECT_THAT(error_with([](MessageStream& client) {
                static_cast<void>(receive<HandshakeStep>(client));
                client.send(End{0, ""});
              }),
              HasSubstr("does not know this job's secret"));
}

TEST(TcpRendezvousClient, ReportsARefusalWithoutAProofAsAClaim) {
  EXPECT_THAT(
      error_with([](MessageStream& client) {
        client.send(Refusal{"I am full\x1b[2J", {}});
      }),
      testing::AllOf(HasSubstr("has not proved that it knows"), HasSubstr("I am full?[2J")));
}

TEST(TcpRendezvousClient, BelievesARefusalOfAServerThatHasProvedItself) {
  EXPECT_THAT(error_with([](MessageStream& client) {
                EXPECT_EQ(admit(client).version, "1");
                client.send(Refusal{"the job is over", {}});
              }),
              HasSubstr("refuses this process: the job is over"));
}

TEST(TcpRendezvousClient, DoesNotBelieveAServerOfAnotherUserOfTheHost) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  std::array<int, 2> pipe{};
  ASSERT_EQ(::pipe(pipe.data()), 0);
  const pid_t stranger = ::fork();
  if (stranger == 0) {
    if (::setgid(65534) != 0 || ::setuid(65534) != 0) ::_exit(1);
    const node::FileDescriptor listener = std::move(transport::listen_at({"127.0.0.1", 0}).front());
    const std::uint16_t port = transport::address_of(listener.get()).port;
    if (::write(pipe[1], &port, sizeof port) != ssize_t{sizeof port}) ::_exit(1);
    MessageStream client = accept_client(listener);
    static_cast<void>(admit(client));
    client.send(Welcome{1s, 1, false});
    client.write();
    for (;;) ::pause();
  }
  std::uint16_t port = 0;
  ASSERT_EQ(::read(pipe[0], &port, sizeof port), ssize_t{sizeof port});
  const ClientOptions options{.server = {"127.0.0.1", port},
                              .secret = make_secret(),
                              .version = "1",
                              .connect_timeout = 20s};
  EXPECT_THAT([&] { TcpRendezvous client(options); },
              testing::ThrowsMessage<BackendError>(testing::HasSubstr("belongs to another user")));
  ::kill(stranger, SIGKILL);
  ::waitpid(stranger, nullptr, 0);
  ::close(pipe[0]);
  ::close(pipe[1]);
}

// It was on its way while this process met the others for the next session.
TEST(TcpRendezvousClient, ForgetsWhatWasAnnouncedInThePreviousSession) {
  const node::FileDescriptor listener = std::move(transport::listen_at({"127.0.0.1", 0}).front());
  std::thread server([&] {
    MessageStream client = accept_client(listener);
    static_cast<void>(admit(client));
    client.send(Welcome{1s, 1, true});
    for (const GenerationNumber generation : {1U, 2U}) {
      static_cast<void>(receive<Join>(client));
      if (generation == 2) client.send(Announcement{1, "a new process waits"});
      client.send(Roster{generation, {Member{.process = 1}}});
    }
    static_cast<void>(receive<Leave>(client));
  });
  TcpRendezvous client({.server = {"127.0.0.1", transport::address_of(listener.get()).port},
                        .secret = make_secret(),
                        .version = "1",
                        .connect_timeout = 20s});
  client.join();
  client.join(1, false);
  EXPECT_EQ(client.announcement(), std::nullopt);
  client.leave();
  server.join();
}

// The standby has not seen the earlier calls of this start, and would take a further one for a
// breach.
TEST(TcpRendezvousClient, MakesNoCallsOfAStartThatTheLostServerHasBegun) {
  const node::FileDescriptor first = std::move(transport::listen_at({"127.0.0.1", 0}).front());
  const node::FileDescriptor second = std::move(transport::listen_at({"127.0.0.1", 0}).front());
  std::atomic<bool> is_lost = false;
  bool has_called = false;
  std::thread servers([&] {
    std::optional<MessageStream> server = accept_client(first);
    static_cast<void>(admit(*server));
    server->send(Welcome{10s, 1, true});
    MessageStream standby = accept_client(second);
    static_cast<void>(admit(standby));
    static_cast<void>(receive<Join>(*server));
    server->send(Roster{1, {Member{.process = 1}}});
    static_cast<void>(receive<Contribution>(*server));
    server->send(Result{1, 0, {Payload{}}});
    server.reset();
    is_lost = true;
    std::this_thread::sleep_for(200ms);  // the client makes its second call
    standby.send(Succession{"the first one is lost"});
    bool has_left = false;
    while (!has_left && !standby.closed()) {
      standby.write();
      standby.read([&](const Message& message) {
        has_called |= std::holds_alternative<Contribution>(message);
        has_left |= std::holds_alternative<Leave>(message);
        return true;
      });
      std::this_thread::yield();
    }
  });
  TcpRendezvous client(
      {.server = {"127.0.0.1", transport::address_of(first.get()).port},
       .standby = transport::Endpoint{"127.0.0.1", transport::address_of(second.get()).port},
       .secret = make_secret(),
       .version = "1",
       .connect_timeout = 20s});
  client.join();
  static_cast<void>(client.gather_all({}));
  while (!is_lost) std::this_thread::yield();
  EXPECT_THROW(static_cast<void>(client.gather_all({})), PeerLeft);
  client.leave();
  servers.join();
  EXPECT_FALSE(has_called);
}

TEST(TcpRendezvousClient, NobodyThereIsReportedAfterTheTimeout) {
  std::uint16_t port = 0;
  { port = transport::address_of(transport::listen_at({"127.0.0.1", 0}).front().get()).port; }
  EXPECT_THROW(static_cast<void>(transport::connect_to({"127.0.0.1", port}, 100ms)), BackendError);
}

// A name may become known while a process waits, as that of a container that has just started.
TEST(TcpRendezvousClient, ANameThatIsNotKnownYetIsLookedUpAgain) {
  struct Enough {};
  int rounds = 0;
  EXPECT_THROW(static_cast<void>(transport::connect_to({"two..dots", 1}, 1h,
                                                       [&] {
                                                         if (++rounds == 3) throw Enough();
                                                       })),
               Enough);
  try {
    static_cast<void>(transport::connect_to({"two..dots", 1}, 1ms));
    FAIL() << "no error";
  } catch (const BackendError& error) {
    EXPECT_THAT(error.what(), HasSubstr("cannot resolve the address of two..dots"));
  }
}

TEST(Endpoints, AreParsed) {
  EXPECT_EQ(transport::parse_endpoint("node1:4711").host, "node1");
  EXPECT_EQ(transport::parse_endpoint("[fd00::1]:80").host, "fd00::1");
  EXPECT_EQ(to_string(transport::parse_endpoint("[fd00::1]:80")), "[fd00::1]:80");
  for (const char* const wrong : {"", "node1", ":80", "node1:", "node1:x", "node1:70000", "[]:80"})
    EXPECT_THROW(static_cast<void>(transport::parse_endpoint(wrong)), InvalidArgument) << wrong;
}

TEST(Secrets, AreReadAsTheyAreWritten) {
  EXPECT_EQ(secret_from_hex(to_hex(make_secret())), make_secret());
  EXPECT_THROW(static_cast<void>(secret_from_hex("12")), InvalidArgument);
  EXPECT_THROW(static_cast<void>(secret_from_hex(std::string(64, 'g'))), InvalidArgument);
  EXPECT_THROW(static_cast<void>(secret_from_hex(std::string(64, '0'))), InvalidArgument);
  const std::string sixteen = "0123456789abcdef";
  EXPECT_THROW(static_cast<void>(secret_from_hex(sixteen + sixteen + sixteen + sixteen)),
               InvalidArgument);
}

}  // namespace
}  // namespace kolo::internal::rendezvous
