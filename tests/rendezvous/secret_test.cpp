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

/// Whether a server lets in somebody who greets, and sends `make(challenge)`.
bool lets_in(const std::function<Proof(const Challenge&)>& make, const Secret& secret) {
  std::uint64_t drawn = 0;
  Server server({.secret = secret, .version = "1", .np = 2}, [&] { return ++drawn; });
  server.on_open(1, "somewhere", Time{});
  server.on_message(1,
                    Hello{.nonce = Bytes(nonce_bytes, std::byte{5}),
                          .role = Role::agent,
                          .process = 11,
                          .host = "a",
                          .slots = 1,
                          .version = "1"},
                    Time{});
  for (const Action& action : server.take()) {
    const auto* const send = std::get_if<Send>(&action);
    if (send == nullptr || !std::holds_alternative<Challenge>(*send->message)) continue;
    server.on_message(1, make(std::get<Challenge>(*send->message)), Time{});
  }
  return std::ranges::any_of(server.take(), [](const Action& action) {
    const auto* const send = std::get_if<Send>(&action);
    return send != nullptr && std::holds_alternative<Welcome>(*send->message);
  });
}

TEST(ServerSecret, MustBeKnownNow) {
  Secret secret{};
  secret.front() = std::byte{1};
  const Bytes own(nonce_bytes, std::byte{5});
  const auto prove = [&](const Challenge& challenge) {
    return make_proof(secret, own, challenge).value();
  };
  std::optional<Proof> earlier;
  EXPECT_TRUE(
      lets_in([&](const Challenge& challenge) { return *(earlier = prove(challenge)); }, secret));
  EXPECT_FALSE(lets_in([](const Challenge&) { return Proof{Bytes(proof_bytes)}; }, secret));
  // The server's own proof, sent back.
  EXPECT_FALSE(lets_in([](const Challenge& challenge) { return Proof{challenge.proof}; }, secret));
  EXPECT_FALSE(lets_in(
      [&](const Challenge& challenge) {
        const Challenge other = make_challenge(Secret{}, own, challenge.nonce);
        return make_proof(Secret{}, own, other).value();
      },
      secret));
  // One that was right for another number of the server.
  EXPECT_FALSE(lets_in(
      [&](const Challenge&) {
        return prove(make_challenge(secret, own, Bytes(nonce_bytes, std::byte{9})));
      },
      secret));
}

// Otherwise what somebody has overheard could be sent again.
TEST(ServerSecret, EachChallengeIsAnotherOne) {
  std::uint64_t drawn = 0;
  Server server({.version = "1", .np = 2}, [&] { return ++drawn; });
  std::vector<Bytes> numbers;
  for (const Link link : {1U, 2U}) {
    server.on_open(link, "somewhere", Time{});
    server.on_message(link, Hello{.nonce = Bytes(nonce_bytes), .version = "1"}, Time{});
    for (const Action& action : server.take())
      if (const auto* const send = std::get_if<Send>(&action))
        if (const auto* const challenge = std::get_if<Challenge>(send->message.get()))
          numbers.push_back(challenge->nonce);
  }
  ASSERT_EQ(numbers.size(), 2U);
  EXPECT_NE(numbers[0], numbers[1]);
}

}  // namespace
}  // namespace kolo::internal::rendezvous
