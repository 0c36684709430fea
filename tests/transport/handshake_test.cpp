// SPDX-License-Identifier: Apache-2.0
#include "transport/handshake.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <iterator>

#include "socket_fixture.hpp"

namespace kolo::internal::transport {
namespace {

using Bytes = Handshake::Bytes;
using Kind = Parties::Kind;
using Side = Handshake::Side;

SocketAddress address(std::uint16_t port) {
  SocketAddress at = loopback();
  at.port = port;
  return at;
}

Handshake caller(const Secret& secret = make_secret(1), Kind kind = Kind::control,
                 std::uint16_t port = 4711) {
  return {Side::caller, secret, {.kind = kind, .caller = 3, .callee = 7, .at = address(port)}};
}
Handshake callee(const Secret& secret = make_secret(1), Kind kind = Kind::control,
                 std::uint16_t port = 4711, int rank = 7) {
  return {Side::callee, secret, {.kind = kind, .callee = rank, .at = address(port)}};
}

/// True if both sides complete their handshakes.
bool agree(Handshake& calls, Handshake& called) {
  const auto welcome = called.answer(calls.begin());
  const auto proof = welcome ? calls.answer(*welcome) : std::nullopt;
  const auto confirmation = proof ? called.answer(*proof) : std::nullopt;
  if (!confirmation) return false;
  if (!confirmation->empty() && !calls.answer(*confirmation)) return false;
  return calls.is_complete() && called.is_complete();
}

TEST(Handshake, BothSidesHaveTheSameKeys) {
  Handshake calls = caller();
  Handshake called = callee();
  EXPECT_EQ(called.peer(), -1);
  ASSERT_TRUE(agree(calls, called));
  EXPECT_EQ(calls.peer(), 7);
  EXPECT_EQ(called.peer(), 3);
  EXPECT_EQ(calls.keys().sent, called.keys().received);
  EXPECT_EQ(calls.keys().received, called.keys().sent);
  EXPECT_NE(calls.keys().sent, calls.keys().received);
  Handshake again = caller();
  Handshake there = callee();
  ASSERT_TRUE(agree(again, there));
  EXPECT_NE(again.keys().sent, calls.keys().sent);
}

TEST(Handshake, TrustComesWithTheProofs) {
  Handshake calls = caller();
  Handshake called = callee();
  EXPECT_EQ(called.awaited_bytes(), Handshake::hello_bytes);
  const auto welcome = called.answer(calls.begin());
  EXPECT_FALSE(called.is_trusted());
  EXPECT_EQ(calls.awaited_bytes(), welcome->size());
  const auto proof = calls.answer(*welcome);
  EXPECT_TRUE(calls.is_trusted());
  EXPECT_FALSE(called.is_trusted());
  EXPECT_EQ(called.awaited_bytes(), proof->size());
  const auto confirmation = called.answer(*proof);
  EXPECT_TRUE(called.is_trusted());
  EXPECT_TRUE(called.is_complete());
  EXPECT_EQ(called.awaited_bytes(), 0U);
  EXPECT_FALSE(called.answer(*proof));
  EXPECT_FALSE(calls.is_complete()) << "the callee may have closed the connection";
  EXPECT_EQ(calls.awaited_bytes(), confirmation->size());
  EXPECT_EQ(calls.answer(*confirmation), Bytes{});
  EXPECT_TRUE(calls.is_complete());
  EXPECT_EQ(calls.awaited_bytes(), 0U);
}

// The server's first message after the handshake serves as the confirmation.
TEST(Handshake, ARendezvousHasThreeMessages) {
  Handshake client(Side::caller, make_secret(1), {.kind = Kind::rendezvous});
  Handshake server(Side::callee, make_secret(1), {.kind = Kind::rendezvous});
  const auto proof = client.answer(*server.answer(client.begin()));
  EXPECT_TRUE(client.is_complete());
  EXPECT_EQ(server.answer(*proof), Bytes{});
  EXPECT_TRUE(server.is_complete());
}

TEST(Handshake, EachSideRefusesAnotherSecret) {
  Handshake calls = caller();
  Handshake stranger = callee(make_secret(2));
  EXPECT_FALSE(calls.answer(*stranger.answer(calls.begin())));
  EXPECT_FALSE(calls.is_trusted());

  Handshake called = callee();
  Handshake strange_caller = caller(make_secret(2));
  ASSERT_TRUE(called.answer(strange_caller.begin()));
  Handshake accomplice = callee(make_secret(2));
  const auto proof = strange_caller.answer(*accomplice.answer(strange_caller.begin()));
  EXPECT_FALSE(called.answer(*proof));
  EXPECT_FALSE(called.is_trusted());
}

TEST(Handshake, AProofSentBackIsRefused) {
  Handshake calls = caller();
  Handshake called = callee();
  const Bytes welcome = *called.answer(calls.begin());
  // The callee's own proof, by a caller that has none.
  EXPECT_FALSE(called.answer(std::span(welcome).last(Handshake::proof_bytes)));
  // The caller's nonce and proof, by a callee that has none.
  Handshake honest = callee();
  const Bytes hello = calls.begin();
  const auto proof = Handshake(calls).answer(*honest.answer(hello));
  Bytes back(hello.begin(), hello.begin() + sizeof(Nonce));
  back.insert(back.end(), proof->begin(), proof->end());
  EXPECT_FALSE(calls.answer(back));
}

TEST(Handshake, RecordedMessagesAreRefused) {
  Handshake calls = caller();
  Handshake called = callee();
  const Bytes hello = calls.begin();
  const Bytes welcome = *called.answer(hello);
  const Bytes proof = *calls.answer(welcome);

  Handshake next_callee = callee();
  EXPECT_NE(*next_callee.answer(hello), welcome);
  EXPECT_FALSE(next_callee.answer(proof));
  EXPECT_FALSE(next_callee.is_trusted());

  Handshake next_caller = caller();
  EXPECT_NE(next_caller.begin(), hello);
  EXPECT_FALSE(next_caller.answer(welcome));
  EXPECT_FALSE(next_caller.is_trusted());
}

TEST(Handshake, BothSidesMustSeeTheSameConnection) {
  const Secret secret = make_secret(1);
  const auto agrees = [&](Handshake calls, Handshake called) { return agree(calls, called); };
  EXPECT_TRUE(agrees(caller(secret, Kind::data, 1), callee(secret, Kind::data, 1)));
  EXPECT_FALSE(agrees(caller(secret, Kind::data, 1), callee(secret, Kind::control, 1)));
  EXPECT_FALSE(agrees(caller(secret, Kind::data, 1), callee(secret, Kind::data, 2)));
  EXPECT_FALSE(agrees(caller(secret, Kind::data, 1), callee(secret, Kind::data, 1, 8)));
  Handshake server(Side::callee, secret, {.kind = Kind::rendezvous});
  EXPECT_FALSE(agrees(caller(secret), server));
  Handshake client(Side::caller, secret, {.kind = Kind::rendezvous});
  EXPECT_FALSE(agrees(client, callee(secret)));
  EXPECT_TRUE(agrees(client, server));
}

// Somebody in between claims for the caller to be rank 4.
TEST(Handshake, AnotherRankIsNotProved) {
  Handshake calls = caller();
  Handshake called = callee();
  Bytes hello = calls.begin();
  hello[sizeof(Nonce)] = std::byte{4};
  const auto welcome = called.answer(hello);
  ASSERT_TRUE(welcome);
  EXPECT_EQ(called.peer(), 4);
  EXPECT_FALSE(calls.answer(*welcome));
}

TEST(Handshake, AlteredOrCutMessagesAreRefused) {
  const auto changes = [](const Bytes& message) {
    std::vector<Bytes> all{{}, message, message};
    all[1].pop_back();
    all[2].push_back(std::byte{0});
    for (std::size_t i = 0; i < message.size(); i += 5) {
      all.push_back(message);
      all.back()[i] ^= std::byte{1};
    }
    return all;
  };
  Handshake calls = caller();
  Handshake called = callee();
  const Bytes hello = calls.begin();
  const Bytes welcome = *called.answer(hello);
  for (const Bytes& wrong : changes(welcome)) {
    Handshake victim(calls);
    EXPECT_FALSE(victim.answer(wrong));
    EXPECT_FALSE(victim.is_trusted());
    EXPECT_FALSE(victim.answer(welcome)) << "it goes on after a failure";
  }
  const Bytes proof = *calls.answer(welcome);
  for (const Bytes& wrong : changes(proof)) {
    Handshake victim(called);
    EXPECT_FALSE(victim.answer(wrong));
    EXPECT_FALSE(victim.answer(proof)) << "it goes on after a failure";
    EXPECT_FALSE(victim.is_trusted());
  }
  const Bytes confirmation = *called.answer(proof);
  for (const Bytes& wrong : changes(confirmation)) {
    Handshake victim(calls);
    EXPECT_FALSE(victim.answer(wrong));
    EXPECT_FALSE(victim.answer(confirmation)) << "it goes on after a failure";
    EXPECT_FALSE(victim.is_complete());
  }
  for (const std::size_t bytes : {0U, 1U, 23U, 25U, 48U})
    EXPECT_FALSE(callee().answer(Bytes(bytes))) << bytes;
}

TEST(Handshake, SecretsOfSessionsDependOnAllTheirParts) {
  const Secret secret = derive_secret(make_secret(1), make_secret(2), 3);
  EXPECT_EQ(secret, derive_secret(make_secret(1), make_secret(2), 3));
  EXPECT_NE(secret, derive_secret(make_secret(4), make_secret(2), 3));
  EXPECT_NE(secret, derive_secret(make_secret(1), make_secret(4), 3));
  EXPECT_NE(secret, derive_secret(make_secret(1), make_secret(2), 4));
  EXPECT_NE(hash_with_secret(secret, "a"), hash_with_secret(secret, "b"));
  EXPECT_NE(hash_with_secret(secret, "a"), hash_with_secret(make_secret(1), "a"));
}

// ---- tags of frames ----

TEST(FrameTags, BelongToOneFrameOfOneDirection) {
  const Bytes header(8, std::byte{1});
  const Bytes body(100, std::byte{2});
  FrameKeys keys;
  keys.sent.fill(std::byte{3});
  const FrameTag tag = FrameTags(keys.sent).next(header, body);
  EXPECT_TRUE(FrameTags(keys.sent).accepts(header, body, tag));
  EXPECT_FALSE(FrameTags(keys.received).accepts(header, body, tag));
  for (std::size_t i = 0; i < header.size(); ++i) {
    Bytes other = header;
    other[i] ^= std::byte{16};
    EXPECT_FALSE(FrameTags(keys.sent).accepts(other, body, tag));
  }
  for (std::size_t i = 0; i < body.size(); ++i) {
    Bytes other = body;
    other[i] ^= std::byte{1};
    EXPECT_FALSE(FrameTags(keys.sent).accepts(header, other, tag));
  }
  for (std::size_t i = 0; i < tag.size(); ++i) {
    FrameTag other = tag;
    other[i] ^= std::byte{128};
    EXPECT_FALSE(FrameTags(keys.sent).accepts(header, body, other));
  }
}

TEST(FrameTags, CountTheFrames) {
  const Bytes header(8, std::byte{1});
  FrameTags sender{FrameKey{}};
  const FrameTag first = sender.next(header, {});
  const FrameTag second = sender.next(header, {});
  EXPECT_NE(first, second);
  FrameTags in_order{FrameKey{}};
  EXPECT_TRUE(in_order.accepts(header, {}, first));
  EXPECT_TRUE(in_order.accepts(header, {}, second));
  EXPECT_FALSE(in_order.accepts(header, {}, second)) << "repeated";
  EXPECT_FALSE(FrameTags{FrameKey{}}.accepts(header, {}, second)) << "the first one is lost";
}

}  // namespace
}  // namespace kolo::internal::transport
