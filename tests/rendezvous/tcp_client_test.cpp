// SPDX-License-Identifier: Apache-2.0
// A client on TCP, with a server that the test plays.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <functional>
#include <thread>

#include "job_secret.hpp"
#include "kolo/error.hpp"
#include "rendezvous/tcp_rendezvous.hpp"

namespace kolo::internal::rendezvous {
namespace {

using namespace std::chrono_literals;

MessageStream accept_client(const node::FileDescriptor& listener) {
  node::FileDescriptor socket;
  while (!socket.valid())
    socket = node::FileDescriptor(
        ::accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  return MessageStream(std::move(socket));
}

/// Reads until a message of this kind arrives, and returns it.
template <typename Kind>
Kind receive(MessageStream& from) {
  std::optional<Kind> found;
  while (!found && !from.closed()) {
    from.write();
    from.read([&](const Message& message) {
      if (const auto* kind = std::get_if<Kind>(&message)) found = *kind;
      return !found;
    });
    std::this_thread::yield();
  }
  return found.value_or(Kind{});
}

/// Whether a client goes on after a challenge (none: null) and a welcome.
bool trusts(const std::function<Challenge(const Hello&)>& challenge, bool& has_proved) {
  const node::FileDescriptor listener = transport::listen_at({"127.0.0.1", 0});
  std::thread impostor([&] {
    MessageStream client = accept_client(listener);
    const auto hello = receive<Hello>(client);
    if (challenge) client.send(challenge(hello));
    client.send(Welcome{1s, 1, false});
    has_proved = !receive<Proof>(client).proof.empty();
  });
  bool trusted = true;
  try {
    const TcpRendezvous client({.server = {"127.0.0.1", transport::address_of(listener.get()).port},
                                .secret = make_secret(),
                                .version = "1",
                                .connect_timeout = 20s});
  } catch (const BackendError&) {
    trusted = false;
  }
  impostor.join();
  return trusted;
}

TEST(TcpRendezvousClient, DoesNotTrustWhoeverAnswers) {
  bool has_proved = false;
  const Bytes nonce(nonce_bytes);
  EXPECT_FALSE(trusts(nullptr, has_proved));
  EXPECT_FALSE(has_proved);
  EXPECT_FALSE(trusts(
      [&](const Hello&) {
        return Challenge{nonce, Bytes(proof_bytes)};
      },
      has_proved));
  EXPECT_FALSE(has_proved);
  EXPECT_FALSE(
      trusts([&](const Hello& hello) { return make_challenge(Secret{}, hello.nonce, nonce); },
             has_proved));
  EXPECT_FALSE(has_proved);
  // The challenge of another introduction.
  EXPECT_FALSE(trusts([&](const Hello&) { return make_challenge(make_secret(), nonce, nonce); },
                      has_proved));
  EXPECT_FALSE(has_proved);
  EXPECT_TRUE(
      trusts([&](const Hello& hello) { return make_challenge(make_secret(), hello.nonce, nonce); },
             has_proved));
  EXPECT_TRUE(has_proved);
}

TEST(TcpRendezvousClient, IsNotEndedByWhoHasProvedNothing) {
  const node::FileDescriptor listener = transport::listen_at({"127.0.0.1", 0});
  std::thread impostor([&] {
    MessageStream client = accept_client(listener);
    static_cast<void>(receive<Hello>(client));
    client.send(End{0, ""});
    client.write();
  });
  const ClientOptions options{.server = {"127.0.0.1", transport::address_of(listener.get()).port},
                              .secret = make_secret(),
                              .version = "1",
                              .connect_timeout = 20s};
  EXPECT_THAT(
      [&] { TcpRendezvous client(options); },
      testing::ThrowsMessage<BackendError>(testing::HasSubstr("does not know this job's secret")));
  impostor.join();
}

TEST(TcpRendezvousClient, DoesNotBelieveAServerOfAnotherUserOfTheHost) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  std::array<int, 2> pipe{};
  ASSERT_EQ(::pipe(pipe.data()), 0);
  const pid_t stranger = ::fork();
  if (stranger == 0) {
    if (::setgid(65534) != 0 || ::setuid(65534) != 0) ::_exit(1);
    const node::FileDescriptor listener = transport::listen_at({"127.0.0.1", 0});
    const std::uint16_t port = transport::address_of(listener.get()).port;
    if (::write(pipe[1], &port, sizeof port) != ssize_t{sizeof port}) ::_exit(1);
    MessageStream client = accept_client(listener);
    const auto hello = receive<Hello>(client);
    client.send(make_challenge(make_secret(), hello.nonce, Bytes(nonce_bytes)));
    static_cast<void>(receive<Proof>(client));
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
  const node::FileDescriptor listener = transport::listen_at({"127.0.0.1", 0});
  std::thread server([&] {
    MessageStream client = accept_client(listener);
    const auto hello = receive<Hello>(client);
    client.send(make_challenge(make_secret(), hello.nonce, Bytes(nonce_bytes)));
    static_cast<void>(receive<Proof>(client));
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

TEST(TcpRendezvousClient, NobodyThereIsReportedAfterTheTimeout) {
  std::uint16_t port = 0;
  { port = transport::address_of(transport::listen_at({"127.0.0.1", 0}).get()).port; }
  EXPECT_THROW(static_cast<void>(transport::connect_to({"127.0.0.1", port}, 100ms)), BackendError);
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
}

}  // namespace
}  // namespace kolo::internal::rendezvous
