// SPDX-License-Identifier: Apache-2.0
// When a host that sends nothing is lost.
#include <gmock/gmock.h>

#include <chrono>

#include "socket_transport_fixture.hpp"

namespace kolo::internal::transport {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

using SocketSilence = SocketTransportTest;

TEST_F(SocketSilence, BeatsKeepIdleRanksAlive) {
  connect(4s);
  for (int i = 0; i < 100; ++i) {
    a_.now += 1s;
    b_.now += 1s;
    a_.poll();
    const auto until = steady_clock::now() + too_long;
    while (!b_.readable() && steady_clock::now() < until) std::this_thread::yield();
    b_.poll();
    while (!a_.readable() && steady_clock::now() < until) std::this_thread::yield();
    a_.poll();
    ASSERT_EQ(a_.transport->loss(), nullptr) << i;
    ASSERT_EQ(b_.transport->loss(), nullptr) << i;
  }
  EXPECT_TRUE(a_.arrived.empty());
  EXPECT_TRUE(b_.arrived.empty());
}

TEST_F(SocketSilence, WhoHasSpokenNeedNotBeat) {
  connect(4s);
  a_.transport->send(7, pattern(3, 0, 1));
  poll_until([&] { return b_.arrived.size() == 1; });
  a_.now += 1s;
  a_.poll();
  EXPECT_FALSE(b_.readable());
  a_.now += 1s;
  a_.poll();
  EXPECT_TRUE(b_.readable());
}

TEST_F(SocketSilence, AHostThatIsSilentIsLostInTime) {
  connect(30s);
  b_.now += 30s - 1ns;
  b_.poll();
  EXPECT_EQ(b_.transport->loss(), nullptr);
  b_.now += 1ns;
  b_.poll();
  ASSERT_NE(b_.transport->loss(), nullptr);
  EXPECT_EQ(b_.transport->loss()->message, "host host-a sent nothing for 30 s");
  EXPECT_THAT(b_.transport->loss()->ranks.to_vector(), ElementsAre(3, 4));
  EXPECT_FALSE(b_.readable());
}

TEST_F(SocketSilence, SilenceBeginsAfterTheLastWord) {
  connect(30s);
  b_.now += 20s;
  a_.transport->send(7, pattern(3, 0, 1));
  poll_until([&] { return b_.arrived.size() == 1; });
  b_.now += 29s;
  b_.poll();
  EXPECT_EQ(b_.transport->loss(), nullptr);
  b_.now += 1s;
  b_.poll();
  EXPECT_NE(b_.transport->loss(), nullptr);
}

TEST_F(SocketSilence, WhatHasComeWhileOneSleptCounts) {
  connect(30s);
  a_.transport->send(7, pattern(3, 0, 1));
  const auto until = steady_clock::now() + too_long;
  while (!b_.readable() && steady_clock::now() < until) std::this_thread::yield();
  b_.now += 1000s;
  b_.poll();
  EXPECT_EQ(b_.transport->loss(), nullptr);
}

TEST_F(SocketSilence, AfterALongPauseAHostHasTheWholeTimeAgain) {
  connect(30s);
  b_.now += 29s;
  b_.poll(/*pause=*/7s);
  b_.now += 1s;
  b_.poll();
  EXPECT_NE(b_.transport->loss(), nullptr);
  connect(30s);
  b_.now += 29s;
  b_.poll(/*pause=*/1000s);
  b_.now += 30s - 1ns;
  b_.poll();
  EXPECT_EQ(b_.transport->loss(), nullptr);
  b_.now += 1ns;
  b_.poll();
  EXPECT_NE(b_.transport->loss(), nullptr);
}

TEST_F(SocketSilence, TheTimeBeginsWithTheFirstPass) {
  auto [first, second] = make_connection();
  std::vector<SocketPeer> peers;
  peers.push_back({3, "host-a", {3}, std::move(first)});
  SocketTransport transport(std::move(peers),
                            {.peer_timeout = 30s, .acknowledged_ago = [](int) { return 1000s; }});
  const steady_clock::time_point begin{1000s};
  for (const std::chrono::nanoseconds age : {0ns, 30s - 1ns}) {
    transport.set_time(begin + age, 0s);
    transport.poll([](int, std::span<const std::byte>) { FAIL(); });
    EXPECT_EQ(transport.loss(), nullptr);
  }
}

TEST_F(SocketSilence, AStoppedProcessOfAHostThatAnswersIsNotLost) {
  connect(30s);
  b_.acknowledged_ago = 7s;
  b_.now += 1000s;
  b_.poll();
  EXPECT_EQ(b_.transport->loss(), nullptr);
}

TEST_F(SocketSilence, SilenceOfAHostBeginsWithItsLastAcknowledgement) {
  connect(30s);
  b_.acknowledged_ago = 20s;
  b_.now += 50s;
  b_.poll();
  EXPECT_EQ(b_.transport->loss(), nullptr);
  b_.acknowledged_ago = 30s - 1ns;
  b_.now += 10s - 1ns;
  b_.poll();
  EXPECT_EQ(b_.transport->loss(), nullptr);
  b_.acknowledged_ago = 30s;
  b_.now += 1ns;
  b_.poll();
  ASSERT_NE(b_.transport->loss(), nullptr);
  EXPECT_EQ(b_.transport->loss()->message, "host host-a sent nothing for 30 s");
}

TEST_F(SocketSilence, TheKernelTellsThatAHostAnswers) {
  // The other end of loopback acknowledges what its rank does not read.
  auto [first, second] = make_connection();
  steady_clock::time_point now{};
  std::vector<SocketPeer> peers;
  peers.push_back({3, "host-a", {3}, std::move(first)});
  SocketTransport transport(std::move(peers), {.peer_timeout = std::chrono::hours(1)});
  transport.set_time(now, 0s);
  for (int i = 0; i < 10; ++i) {
    now += std::chrono::hours(1);
    transport.set_time(now, 0s);
    transport.poll([](int, std::span<const std::byte>) { FAIL(); });
  }
  EXPECT_EQ(transport.loss(), nullptr);
}

TEST_F(SocketSilence, WithoutATimeoutNobodyIsEverLostBySilence) {
  connect(0s);
  b_.now += std::chrono::hours(1000);
  b_.poll();
  EXPECT_EQ(b_.transport->loss(), nullptr);
  EXPECT_FALSE(a_.readable());  // no beat either
}

}  // namespace
}  // namespace kolo::internal::transport
