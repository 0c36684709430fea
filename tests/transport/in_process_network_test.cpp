// SPDX-License-Identifier: Apache-2.0
#include "../support/in_process_network.hpp"

#include <gmock/gmock.h>

#include <map>
#include <utility>

namespace kolo::internal::transport {
namespace {

using testing::ElementsAre;

using Received = std::vector<std::pair<int, int>>;  // peer, number

Message message(int number) {
  return {static_cast<std::byte>(number & 0xff), static_cast<std::byte>(number >> 8)};
}

int number_in(std::span<const std::byte> bytes) {
  return std::to_integer<int>(bytes[0]) + 256 * std::to_integer<int>(bytes[1]);
}

Received poll(Transport& transport) {
  Received received;
  const bool moved = transport.poll([&](int peer, std::span<const std::byte> bytes) {
    received.emplace_back(peer, number_in(bytes));
  });
  EXPECT_EQ(moved, !received.empty());
  return received;
}

TEST(InProcessNetwork, DeliversOnlyWhenTold) {
  InProcessNetwork network(2, 0);
  EXPECT_TRUE(network.quiet());
  EXPECT_FALSE(network.deliver_one());
  network.endpoint(0).send(1, message(7));
  EXPECT_TRUE(network.endpoint(0).flushed());
  EXPECT_FALSE(network.quiet());
  EXPECT_TRUE(poll(network.endpoint(1)).empty());
  EXPECT_TRUE(network.deliver_one());
  EXPECT_FALSE(network.quiet());
  EXPECT_THAT(poll(network.endpoint(1)), ElementsAre(std::pair(0, 7)));
  EXPECT_TRUE(network.quiet());
}

TEST(InProcessNetwork, HandsOverEmptyMessagesAndThoseToOneself) {
  InProcessNetwork network(1, 0);
  network.endpoint(0).send(0, {});
  EXPECT_TRUE(network.deliver_one());
  int messages = 0;
  network.endpoint(0).poll([&](int peer, std::span<const std::byte> bytes) {
    EXPECT_EQ(peer, 0);
    EXPECT_TRUE(bytes.empty());
    ++messages;
  });
  EXPECT_EQ(messages, 1);
}

/// Every rank sends to every other; what rank 0 then receives, in order.
Received exchange(int ranks, int messages, std::uint64_t seed) {
  InProcessNetwork network(ranks, seed);
  for (int i = 0; i < messages; ++i)
    for (int from = 0; from < ranks; ++from)
      for (int to = 0; to < ranks; ++to) network.endpoint(from).send(to, message(i));
  while (network.deliver_one()) {
  }
  const Received received = poll(network.endpoint(0));
  for (int rank = 1; rank < ranks; ++rank) poll(network.endpoint(rank));
  EXPECT_TRUE(network.quiet());
  return received;
}

TEST(InProcessNetwork, KeepsTheOrderOfEachPair) {
  std::map<int, int> next;
  for (const auto& [peer, number] : exchange(5, 100, 3)) EXPECT_EQ(number, next[peer]++) << peer;
  EXPECT_EQ(next.size(), 5U);
  for (const auto& [peer, count] : next) EXPECT_EQ(count, 100) << peer;
}

TEST(InProcessNetwork, IsTheSameForTheSameSeedAndAnotherForAnother) {
  EXPECT_EQ(exchange(4, 20, 1), exchange(4, 20, 1));
  EXPECT_NE(exchange(4, 20, 1), exchange(4, 20, 2));
}

TEST(InProcessNetwork, WhatAReceiverSendsIsDeliveredLater) {
  InProcessNetwork network(2, 0);
  network.endpoint(0).send(1, message(1));
  EXPECT_TRUE(network.deliver_one());
  network.endpoint(1).poll([&](int peer, std::span<const std::byte>) {
    network.endpoint(1).send(peer, message(2));
    network.endpoint(1).send(1, message(3));
  });
  EXPECT_TRUE(poll(network.endpoint(1)).empty());
  while (network.deliver_one()) {
  }
  EXPECT_THAT(poll(network.endpoint(0)), ElementsAre(std::pair(1, 2)));
  EXPECT_THAT(poll(network.endpoint(1)), ElementsAre(std::pair(1, 3)));
}

TEST(InProcessNetwork, HasRoomForThousandsOfRanks) {
  constexpr int ranks = 2000;
  InProcessNetwork network(ranks, 0);
  for (int rank = 1; rank < ranks; ++rank) network.endpoint(rank).send(rank / 2, message(rank));
  int delivered = 0;
  while (network.deliver_one()) ++delivered;
  EXPECT_EQ(delivered, ranks - 1);
  EXPECT_EQ(poll(network.endpoint(3)).size(), 2U);
}

}  // namespace
}  // namespace kolo::internal::transport
