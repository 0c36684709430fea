// SPDX-License-Identifier: Apache-2.0
// The clients that the server admits.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <optional>

#include "job_secret.hpp"
#include "rendezvous/server/server.hpp"

namespace kolo::internal::rendezvous {
namespace {

const Hello agent_hello{
    .role = Role::agent, .process = 11, .host = "a", .slots = 1, .version = "1"};

template <typename Kind>
std::optional<Kind> find(const std::vector<Action>& actions) {
  for (const Action& action : actions)
    if (const auto* const send = std::get_if<Send>(&action))
      if (const auto* const message = std::get_if<Kind>(send->message.get())) return *message;
  return std::nullopt;
}

/// Whether a server lets in somebody who sends `make(welcome)` as a proof, and then says hello.
bool lets_in(const std::function<Bytes(const Bytes&)>& make, const Secret& secret) {
  std::uint64_t drawn = 0;
  Server server({.secret = secret, .version = "1", .np = 2}, [&] { return ++drawn; });
  server.on_open(1, "somewhere", Time{});
  server.on_message(1, HandshakeStep{make_client(secret).begin()}, Time{});
  const auto welcome = find<HandshakeStep>(server.take());
  server.on_message(1, HandshakeStep{make(welcome.value().bytes)}, Time{});
  server.on_message(1, agent_hello, Time{});
  return find<Welcome>(server.take()).has_value();
}

TEST(ServerSecret, MustBeKnownNow) {
  Secret secret{};
  secret.front() = std::byte{1};
  const auto prove = [&](const Bytes& welcome) {
    return make_client(secret).answer(welcome).value();
  };
  EXPECT_TRUE(lets_in(prove, secret));
  EXPECT_FALSE(
      lets_in([](const Bytes&) { return Bytes(transport::Handshake::proof_bytes); }, secret));
  // The server's own proof, sent back.
  EXPECT_FALSE(lets_in(
      [](const Bytes& welcome) {
        return Bytes(welcome.end() - transport::Handshake::proof_bytes, welcome.end());
      },
      secret));
  const auto prove_to = [](transport::Handshake server, const Secret& known) {
    transport::Handshake client = make_client(known);
    return client.answer(server.answer(client.begin()).value()).value();
  };
  EXPECT_FALSE(lets_in([&](const Bytes&) { return prove_to(make_server({}), {}); }, secret));
  // One that was right for another nonce of the server.
  EXPECT_FALSE(
      lets_in([&](const Bytes&) { return prove_to(make_server(secret, 9), secret); }, secret));
}

// Otherwise recorded messages could be sent again.
TEST(ServerSecret, EachWelcomeIsAnotherOne) {
  std::uint64_t drawn = 0;
  Server server({.version = "1", .np = 2}, [&] { return ++drawn; });
  std::vector<Bytes> welcomes;
  for (const Link link : {1U, 2U}) {
    server.on_open(link, "somewhere", Time{});
    server.on_message(link, HandshakeStep{make_client({}).begin()}, Time{});
    welcomes.push_back(find<HandshakeStep>(server.take()).value().bytes);
  }
  EXPECT_NE(welcomes[0], welcomes[1]);
}

// A hello may describe the job, and its sender must be known.
TEST(ServerSecret, AHelloBeforeTheProofIsRefused) {
  for (const bool begins : {false, true}) {
    Server server({.version = "1", .np = 2}, [] { return std::uint64_t{4}; });
    server.on_open(1, "somewhere", Time{});
    if (begins) server.on_message(1, HandshakeStep{make_client({}).begin()}, Time{});
    server.on_message(1, agent_hello, Time{});
    const std::vector<Action> actions = server.take();
    EXPECT_TRUE(find<Refusal>(actions)) << begins;
    EXPECT_FALSE(find<Welcome>(actions)) << begins;
  }
}

// Its keys are given to the connection before anything else is sent.
TEST(ServerSecret, TheProofAuthenticatesTheConnection) {
  Server server({.version = "1", .np = 2}, [] { return std::uint64_t{4}; });
  server.on_open(1, "somewhere", Time{});
  transport::Handshake client = make_client({});
  server.on_message(1, HandshakeStep{client.begin()}, Time{});
  const auto welcome = find<HandshakeStep>(server.take());
  server.on_message(1, HandshakeStep{client.answer(welcome.value().bytes).value()}, Time{});
  server.on_message(1, agent_hello, Time{});
  const std::vector<Action> actions = server.take();
  ASSERT_FALSE(actions.empty());
  const auto* const authenticate = std::get_if<Authenticate>(&actions.front());
  ASSERT_NE(authenticate, nullptr);
  EXPECT_EQ(authenticate->link, 1U);
  EXPECT_EQ(authenticate->keys.sent, client.keys().received);
  EXPECT_TRUE(find<Welcome>(actions));
}

}  // namespace
}  // namespace kolo::internal::rendezvous
