// SPDX-License-Identifier: Apache-2.0
// Connections that break and come back.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <thread>

#include "kolo/error.hpp"
#include "reconnect_fixture.hpp"

namespace kolo::internal::transport {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

using Reconnect = ReconnectTest;

TEST_F(Reconnect, AResetLosesAndRepeatsNothing) {
  connect();
  for (int round = 0; round < 5; ++round) {
    send(caller_, 100);
    send(callee_, 70'000);
    poll_until([] { return true; });
    relay_.break_all();
    send(caller_, 300'000);
    send(callee_, 0);
    expect_all();
  }
  EXPECT_EQ(relay_.connections(), 5U);
}

TEST_F(Reconnect, AConnectionMayBeClosedInGoodOrder) {
  connect();
  send(caller_, 10);
  expect_all();
  relay_.close_all();
  send(callee_, 20);
  expect_all();
}

/// The callee does not know that its connection has broken when the caller calls again.
TEST_F(Reconnect, TheOtherSideMayNotHaveNoticed) {
  connect();
  send(callee_, 10);
  expect_all();
  relay_.break_callers();
  send(callee_, 20);
  send(caller_, 30);
  expect_all();
}

/// Of a small exchange, and of the exchange of those who connect again: each byte in each direction
/// may be the last.
TEST_F(Reconnect, EveryByteMayBeTheLast) {
  connect();
  for (const auto direction : {Relay::to_callee, Relay::to_caller}) {
    bool cuts = true;
    for (std::size_t bytes = 0; cuts; ++bytes) {
      // The first cut is in the exchange, the second one in what follows it.
      relay_.cut_after(direction, bytes % 41);
      send(caller_, 0);
      send(callee_, 5);
      poll_until([&] { return relay_.has_cut(); });
      relay_.cut_after(direction, bytes);
      send(caller_, 9);
      send(callee_, 1);
      expect_all();
      ASSERT_FALSE(HasFailure()) << direction << " " << bytes;
      cuts = relay_.has_cut();
      relay_.stop_cutting();
    }
  }
}

TEST_F(Reconnect, LargeMessagesBeginAgain) {
  callee_.window = caller_.window = 200'000;
  connect();
  for (int i = 0; i < 20; ++i) {
    send(caller_, 100'000 + static_cast<std::size_t>(i));
    send(callee_, 70'000);
  }
  for (std::size_t bytes = 1000; bytes < 2'000'000; bytes += 333'333) {
    relay_.cut_after(Relay::to_callee, bytes);
    poll_until([&] { return relay_.has_cut() || callee_.arrived.size() == 20; });
  }
  relay_.stop_cutting();
  expect_all();
  EXPECT_GE(relay_.connections(), 3U);
}

TEST_F(Reconnect, AnOutageIsNoLossUntilItsTimeIsOver) {
  connect();
  relay_.set_down(true);
  relay_.break_all();
  send(caller_, 10);
  send(callee_, 20);
  EXPECT_FALSE(caller_.transport->flushed());
  for (End* end : {&caller_, &callee_}) end->now += 29s;
  poll_until([] { return true; });
  // The caller calls again when nobody has answered for some time.
  relay_.set_down(false);
  expect_all();

  relay_.set_down(true);
  relay_.break_all();
  poll_until([] { return true; });
  caller_.now += 29s;
  caller_.poll();
  EXPECT_EQ(caller_.loss(), "");
  caller_.now += 2s;
  caller_.poll();
  EXPECT_THAT(caller_.loss(), HasSubstr("the connection to rank 7 on host host-b was closed"));
  EXPECT_THAT(caller_.loss(), HasSubstr("and did not come back within 31 s"));
  EXPECT_THAT(caller_.transport->loss()->ranks.to_vector(), ElementsAre(7, 8));
  caller_.transport->send(7, Message(10));  // goes nowhere
  EXPECT_TRUE(caller_.transport->flushed());
  caller_.poll();
  EXPECT_FALSE(caller_.readable());
}

/// As if the caller had another address now: nothing comes over the connection, and nobody says so.
TEST_F(Reconnect, ASilentHostIsCalledAgain) {
  connect();
  send(caller_, 10);
  expect_all();
  relay_.forget_all();
  send(caller_, 20);
  send(callee_, 30);
  for (End* end : {&caller_, &callee_}) end->now += 14s;
  poll_until([] { return true; });
  EXPECT_EQ(relay_.connections(), 0U);
  for (End* end : {&caller_, &callee_}) end->now += 2s;
  expect_all();
  EXPECT_EQ(relay_.connections(), 1U);
}

TEST_F(Reconnect, AHostThatAnswersAfterAllKeepsItsConnection) {
  connect();
  relay_.set_down(true);
  send(callee_, 10);
  caller_.now += 16s;
  caller_.poll();
  relay_.set_down(false);
  expect_all();
  send(caller_, 20);
  expect_all();
  EXPECT_EQ(caller_.loss(), "");
}

TEST_F(Reconnect, AProcessThatHasEndedIsLostAtOnce) {
  connect(/*through_relay=*/false);
  send(callee_, 100);
  poll_until([&] { return callee_.transport->flushed(); });
  callee_.transport.reset();
  callee_.listeners.reset();
  poll_until([&] { return caller_.transport->loss() != nullptr; });
  EXPECT_THAT(caller_.loss(), HasSubstr("the connection to rank 7 on host host-b was closed"));
  EXPECT_THAT(caller_.loss(), HasSubstr("its process has ended"));
  EXPECT_THAT(caller_.transport->loss()->ranks.to_vector(), ElementsAre(7));
  EXPECT_EQ(caller_.arrived.size(), 1U);
}

TEST_F(Reconnect, ACallerThatHasEndedIsLostAtOnce) {
  connect(/*through_relay=*/false);
  send(caller_, 100);
  poll_until([&] { return caller_.transport->flushed(); });
  caller_.transport.reset();
  caller_.listeners.reset();
  poll_until([&] { return callee_.transport->loss() != nullptr; });
  EXPECT_THAT(callee_.loss(), HasSubstr("its process has ended"));
  EXPECT_THAT(callee_.transport->loss()->ranks.to_vector(), ElementsAre(3));
  EXPECT_EQ(callee_.arrived.size(), 1U);
}

TEST_F(Reconnect, AForkedChildKeepsNoPortOpen) {
  connect(/*through_relay=*/false);
  std::array<int, 2> pipe{};
  ASSERT_EQ(::pipe2(pipe.data(), O_CLOEXEC), 0);
  const node::FileDescriptor read_end(pipe[0]);
  node::FileDescriptor write_end(pipe[1]);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {  // lives until the parent closes its end
    ::close(write_end.get());
    char none = 0;
    static_cast<void>(!::read(read_end.get(), &none, 1));
    ::_exit(0);
  }
  caller_.transport.reset();
  caller_.listeners.reset();
  poll_until([&] { return callee_.transport->loss() != nullptr; });
  write_end = node::FileDescriptor();
  EXPECT_EQ(::waitpid(child, nullptr, 0), child);
}

/// A rank that only sends hears by keepalives what has arrived.
TEST_F(Reconnect, WhatIsNotAcknowledgedIsBounded) {
  caller_.window = callee_.window = 10'000;
  connect();
  for (int i = 0; i < 100; ++i) send(caller_, 1000);
  EXPECT_FALSE(caller_.transport->flushed());
  caller_.poll();
  relay_.step();
  EXPECT_LE(relay_.passed(), 11'000U + 11 * 40);
  EXPECT_FALSE(caller_.readable()) << "it waits for an acknowledgment, and not for room";
  expect_all();
  EXPECT_TRUE(caller_.transport->flushed());
}

TEST_F(Reconnect, BothMayFillTheirWindows) {
  caller_.window = callee_.window = 10'000;
  connect();
  for (int i = 0; i < 100; ++i) {
    send(caller_, 1000);
    send(callee_, 3000);
  }
  expect_all();
}

TEST_F(Reconnect, TooMuchForABrokenConnectionIsRefused) {
  caller_.max_unsent = 100'000;
  connect();
  relay_.set_down(true);
  relay_.break_all();
  poll_until([] { return true; });
  for (int i = 0; i < 10; ++i) send(caller_, 10'000);
  EXPECT_THAT([&] { caller_.transport->send(7, Message(1000)); },
              testing::ThrowsMessage<BackendError>(HasSubstr("rank 7 does not read its messages")));
}

/// No frame but those of messages, and each is acknowledged by the next one of the other side.
TEST_F(Reconnect, AcknowledgmentsRideOnMessages) {
  connect();
  for (int i = 0; i < 50; ++i) {
    send(caller_, 16);
    expect_all();
    send(callee_, 16);
    expect_all();
  }
  EXPECT_EQ(relay_.passed(), 100U * (40 + 16));
  relay_.break_all();
  poll_until([&] { return relay_.connections() == 1 && !caller_.readable(); });
  send(caller_, 16);
  expect_all();
  // Nothing was sent again, since the records say what has arrived.
  const std::size_t handshake = 24 + 48 + 32 + 32;
  EXPECT_EQ(relay_.passed(), 100U * 56 + handshake + 2 * 24 + 56);
}

/// One side has said goodbye already, and its goodbye is lost.
TEST_F(Reconnect, GoodbyesComeBackToo) {
  connect();
  relay_.set_down(true);
  send(caller_, 100);
  caller_.transport->send(7, {});
  std::thread other([&] { caller_.transport->close(too_long); });
  relay_.break_all();
  relay_.set_down(false);
  const auto until = steady_clock::now() + too_long;
  while (callee_.arrived.size() < 2 && steady_clock::now() < until) {
    relay_.step();
    callee_.poll();
  }
  std::atomic<bool> done = false;
  std::thread relay([&] {
    while (!done) relay_.step();
  });
  callee_.transport->close(too_long);
  other.join();
  EXPECT_LT(steady_clock::now(), until) << "one has waited in vain";
  done = true;
  relay.join();
  EXPECT_EQ(callee_.arrived.size(), 2U);
  EXPECT_EQ(callee_.loss(), "");
}

}  // namespace
}  // namespace kolo::internal::transport
