// SPDX-License-Identifier: Apache-2.0
#include "transport/control/socket_transport.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <optional>
#include <thread>

#include "kolo/error.hpp"
#include "node/doorbell.hpp"
#include "socket_transport_fixture.hpp"

namespace kolo::internal::transport {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST_F(SocketTransportTest, KeepsTheOrderOfManyMessagesBothWays) {
  connect();
  constexpr int messages = 2000;
  const auto size_of_message = [](int number) -> std::size_t {
    constexpr std::array<std::size_t, 6> sizes{0, 1, 15, 16, 17, 70'000};
    return number % 50 == 0 ? 300'000 : sizes[static_cast<std::size_t>(number) % sizes.size()];
  };
  for (int number = 0; number < messages; ++number) {
    a_.transport->send(7, pattern(3, number, size_of_message(number)));
    b_.transport->send(3, pattern(7, number, size_of_message(number)));
  }
  EXPECT_FALSE(a_.transport->flushed());
  poll_until([&] { return a_.arrived.size() == messages && b_.arrived.size() == messages; });
  for (int number = 0; number < messages; ++number) {
    const auto at = static_cast<std::size_t>(number);
    ASSERT_EQ(a_.arrived[at], pattern(7, number, size_of_message(number))) << number;
    ASSERT_EQ(b_.arrived[at], pattern(3, number, size_of_message(number))) << number;
  }
  EXPECT_TRUE(a_.transport->flushed());
  EXPECT_TRUE(b_.transport->flushed());
  EXPECT_FALSE(a_.readable());
  EXPECT_FALSE(b_.readable());
}

TEST_F(SocketTransportTest, CarriesMegabytesThroughSmallBuffers) {
  connect();
  const int small = 4096;
  ::setsockopt(raw_, SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
  a_.transport->send(7, pattern(3, 0, 2'000'000));
  EXPECT_FALSE(a_.transport->flushed());
  a_.transport->send(7, {});
  poll_until([&] { return b_.arrived.size() == 2; });
  EXPECT_EQ(b_.arrived[0], pattern(3, 0, 2'000'000));
  EXPECT_TRUE(b_.arrived[1].empty());
}

TEST_F(SocketTransportTest, FramesMayComeByteByByte) {
  // Beside an end that is no transport: its frames are copied bytewise.
  auto [from, to] = make_connection();
  SocketEdge writer(1, std::move(from), keys_of(1));
  auto [relay, reader_socket] = make_connection();
  SocketEdge reader(1, std::move(reader_socket), reversed(keys_of(1)));
  for (int number = 0; number < 5; ++number)
    writer.send(pattern(1, number, static_cast<std::size_t>(number) * 9));
  std::vector<Message> arrived;
  const auto until = steady_clock::now() + too_long;
  while (arrived.size() < 5 && steady_clock::now() < until) {
    std::byte byte{};
    if (::recv(to.get(), &byte, 1, 0) == 1) {
      ASSERT_EQ(::send(relay.get(), &byte, 1, MSG_NOSIGNAL), 1);
    }
    reader.read([&](int, std::span<const std::byte> message) {
      arrived.emplace_back(message.begin(), message.end());
    });
  }
  ASSERT_EQ(arrived.size(), 5U);
  for (int number = 0; number < 5; ++number)
    EXPECT_EQ(arrived[static_cast<std::size_t>(number)],
              pattern(1, number, static_cast<std::size_t>(number) * 9));
}

TEST_F(SocketTransportTest, SaysWhetherAnythingMoved) {
  connect();
  const auto never = [](int, std::span<const std::byte>) { FAIL(); };
  EXPECT_TRUE(a_.transport->flushed());
  EXPECT_FALSE(a_.readable());
  EXPECT_FALSE(a_.transport->poll(never));
  a_.transport->send(7, pattern(3, 0, 10));
  poll_until([&] { return b_.arrived.size() == 1; });
  EXPECT_FALSE(b_.transport->poll(never));
}

TEST_F(SocketTransportTest, AReceiverMaySend) {
  connect();
  int hops = 0;
  const auto pass_on = [&](SocketTransport& transport, int to) {
    return [&, to](int, std::span<const std::byte> message) {
      if (++hops < 100) transport.send(to, {message.begin(), message.end()});
    };
  };
  a_.transport->send(7, pattern(3, 0, 100));
  const auto until = steady_clock::now() + too_long;
  while (hops < 100 && steady_clock::now() < until) {
    a_.transport->poll(pass_on(*a_.transport, 7));
    b_.transport->poll(pass_on(*b_.transport, 3));
  }
  EXPECT_EQ(hops, 100);
}

TEST_F(SocketTransportTest, WakesWhoSleeps) {
  connect();
  node::BellWord word{};
  node::Doorbell bell(word, node::Doorbell::open());
  bell.watch(b_.transport->descriptor());
  for (const node::Listener who : {node::Listener::thread, node::Listener::waiter}) {
    bell.listen(who, node::WakeReason::messages);
    std::thread sender([&] { a_.transport->send(7, pattern(3, 0, 10)); });
    const auto since = steady_clock::now();
    bell.sleep(who, too_long);
    EXPECT_LT(steady_clock::now() - since, too_long);
    sender.join();
    bell.stop_listening();
    b_.poll();
  }
  EXPECT_EQ(b_.arrived.size(), 2U);
}

TEST_F(SocketTransportTest, AThreadThatDoesNotListenIsLeftAsleep) {
  connect();
  node::BellWord word{};
  node::Doorbell bell(word, node::Doorbell::open());
  bell.watch(b_.transport->descriptor());
  a_.transport->send(7, pattern(3, 0, 10));
  const auto since = steady_clock::now();
  bell.sleep(node::Listener::thread, 20ms);
  EXPECT_GE(steady_clock::now() - since, 20ms);
  // It sleeps already when it begins to listen.
  std::thread sleeper([&] { bell.sleep(node::Listener::thread, too_long); });
  bell.listen(node::Listener::thread, node::WakeReason::messages);
  sleeper.join();
  EXPECT_LT(steady_clock::now() - since, too_long);
}

TEST_F(SocketTransportTest, AConnectionThatIsClosedIsALossAfterWhatWasSent) {
  connect();
  a_.transport->send(7, pattern(3, 0, 200'000));
  poll_until([&] { return a_.transport->flushed(); });
  a_.transport->send(7, pattern(3, 1, 10));
  a_.transport.reset();
  const auto until = steady_clock::now() + too_long;
  while (b_.transport->loss() == nullptr && steady_clock::now() < until) b_.poll();
  ASSERT_NE(b_.transport->loss(), nullptr);
  EXPECT_EQ(b_.arrived.size(), 2U);
  EXPECT_THAT(b_.transport->loss()->ranks.to_vector(), ElementsAre(3));
  EXPECT_THAT(b_.transport->loss()->message,
              HasSubstr("the connection to rank 3 on host host-a was closed"));
  EXPECT_FALSE(b_.readable());
  b_.transport->send(3, pattern(7, 0, 10));  // goes nowhere
  EXPECT_TRUE(b_.transport->flushed());
  EXPECT_FALSE(b_.transport->poll([](int, std::span<const std::byte>) { FAIL(); }));
}

/// The other rank neither reads nor closes, and nobody is silent: only the error tells.
TEST_F(SocketTransportTest, ARankToWhichNothingCanBeSentIsLostAfterWhatItHasSent) {
  for (const bool waits_for_room : {false, true}) {
    a_.arrived.clear();
    connect();
    b_.transport->send(3, pattern(7, 0, 1000));
    poll_until([&] { return b_.transport->flushed(); });
    if (waits_for_room) {
      const int small = 4096;
      ::setsockopt(raw_, SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
      a_.transport->send(7, Message(std::size_t{32} << 20));
      EXPECT_FALSE(a_.transport->flushed());
    }
    ASSERT_EQ(::shutdown(raw_, SHUT_WR), 0);
    if (!waits_for_room) a_.transport->send(7, pattern(3, 0, 10));
    const auto until = steady_clock::now() + too_long;
    while (a_.transport->loss() == nullptr && steady_clock::now() < until) a_.poll();
    ASSERT_NE(a_.transport->loss(), nullptr) << waits_for_room;
    EXPECT_THAT(a_.transport->loss()->ranks.to_vector(), ElementsAre(7));
    EXPECT_THAT(a_.transport->loss()->message,
                HasSubstr("the connection to rank 7 on host host-b was closed: Broken pipe"));
    ASSERT_EQ(a_.arrived.size(), 1U);
    EXPECT_EQ(a_.arrived[0], pattern(7, 0, 1000));
    EXPECT_FALSE(a_.readable());
    EXPECT_TRUE(a_.transport->flushed());
  }
}

TEST_F(SocketTransportTest, AGoodbyeIsNoLoss) {
  connect(1s);
  a_.transport->send(7, pattern(3, 0, 10));
  std::thread other([&] { a_.transport->close(too_long); });
  const auto until = steady_clock::now() + too_long;
  while (b_.arrived.empty() && steady_clock::now() < until) b_.poll();
  b_.transport->close(too_long);
  other.join();
  EXPECT_LT(steady_clock::now(), until);  // neither has waited in vain
  a_.transport.reset();
  b_.now += 10s;
  b_.poll();
  EXPECT_EQ(b_.transport->loss(), nullptr);
  EXPECT_EQ(b_.arrived.size(), 1U);
}

TEST_F(SocketTransportTest, NobodyIsWaitedForLongerThanAllowed) {
  connect();
  const auto since = steady_clock::now();
  a_.transport->close(20ms);
  EXPECT_LT(steady_clock::now() - since, too_long);
}

TEST_F(SocketTransportTest, ARankThatTakesNothingIsRefusedMessagesAndNoGoodbye) {
  a_.max_unsent = 1'000'000;
  connect();
  const std::size_t more_than_sockets_take = std::size_t{32} << 20;
  EXPECT_THAT([&] { a_.transport->send(7, Message(more_than_sockets_take)); },
              testing::ThrowsMessage<BackendError>(HasSubstr("rank 7 does not read its messages")));
  a_.transport->close(0ms);  // as a destructor calls it
  EXPECT_FALSE(a_.transport->flushed());
}

TEST_F(SocketTransportTest, AFrameWithAnotherKeyEndsTheConnection) {
  connect(0s, keys_of(1));
  a_.transport->send(7, pattern(3, 0, 10));
  const auto until = steady_clock::now() + too_long;
  while (b_.transport->loss() == nullptr && steady_clock::now() < until) b_.poll();
  ASSERT_NE(b_.transport->loss(), nullptr);
  EXPECT_THAT(b_.transport->loss()->message,
              HasSubstr("the connection to rank 3 on host host-a was closed: a frame of "
                        "rank 3 was altered, lost or repeated on the way"));
  EXPECT_TRUE(b_.arrived.empty());
}

/// The frames that a rank sends for three messages.
std::vector<std::string> record_frames() {
  auto [from, to] = make_connection();
  SocketEdge writer(1, std::move(from), keys_of(1));
  std::vector<std::string> frames;
  for (int number = 0; number < 3; ++number) {
    writer.send(pattern(1, number, 100));
    std::string& frame = frames.emplace_back();
    for (const auto until = steady_clock::now() + too_long;
         frame.size() < 40 + 104 && steady_clock::now() < until;) {
      std::array<char, 256> buffer{};
      const ssize_t bytes = ::recv(to.get(), buffer.data(), buffer.size(), 0);
      if (bytes > 0) frame.append(buffer.data(), static_cast<std::size_t>(bytes));
    }
  }
  return frames;
}

/// The number of messages that reach a rank from these frames, and its error. `cut`: the connection
/// ends behind them.
std::pair<int, std::string> hear(const std::vector<std::string>& frames,
                                 const FrameKeys& keys = reversed(keys_of(1)), bool cut = true) {
  auto [relay, socket] = make_connection();
  for (const std::string& frame : frames)
    EXPECT_EQ(::send(relay.get(), frame.data(), frame.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(frame.size()));
  if (cut) relay = {};
  SocketEdge reader(1, std::move(socket), keys);
  int messages = 0;
  const auto until = steady_clock::now() + too_long;
  while (!reader.closed() && steady_clock::now() < until)
    reader.read([&](int, std::span<const std::byte>) { ++messages; });
  return {messages, reader.error()};
}

TEST(SocketEdge, AFrameThatWasTouchedOnTheWayEndsTheEdge) {
  const std::vector<std::string> frames = record_frames();
  const std::string touched = "a frame of rank 1 was altered, lost or repeated on the way";
  EXPECT_EQ(hear(frames), std::pair(3, std::string()));
  for (const std::size_t at : {0U, 4U, 7U, 8U, 15U, 16U, 23U, 24U, 39U, 40U, 139U}) {
    // The kind, the length, the acknowledgment, the tags, and the message. The edge does not wait
    // for a longer message.
    std::vector<std::string> altered = frames;
    altered[1][at] = static_cast<char>(altered[1][at] ^ 1);
    EXPECT_EQ(hear(altered, reversed(keys_of(1)), /*cut=*/false), std::pair(1, touched)) << at;
  }
  EXPECT_EQ(hear({frames[0], frames[2]}), std::pair(1, touched)) << "one is dropped";
  EXPECT_EQ(hear({frames[0], frames[0]}), std::pair(1, touched)) << "one is repeated";
  EXPECT_EQ(hear({frames[1], frames[0]}), std::pair(0, touched)) << "two are exchanged";
  EXPECT_EQ(hear(frames, keys_of(1)), std::pair(0, touched)) << "they are sent back";
  EXPECT_EQ(hear(frames, keys_of(9)), std::pair(0, touched)) << "of another connection";
}

TEST_F(SocketTransportTest, OneThatIsAbandonedStaysSilent) {
  connect(30s);
  b_.transport->abandon();
  a_.transport->send(7, pattern(3, 0, 10));
  b_.now += 1000s;
  b_.poll();
  EXPECT_FALSE(b_.readable());
  EXPECT_TRUE(b_.arrived.empty());
  EXPECT_EQ(b_.transport->loss(), nullptr);
}

TEST_F(SocketTransportTest, AStrangerCannotBeSentAnything) {
  connect();
  EXPECT_THROW(a_.transport->send(5, {}), BackendError);
}

TEST_F(SocketTransportTest, AForkedChildDoesNotKeepAConnectionOpen) {
  connect();
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
  a_.transport.reset();
  const auto until = steady_clock::now() + 5s;
  while (b_.transport->loss() == nullptr && steady_clock::now() < until) b_.poll();
  EXPECT_NE(b_.transport->loss(), nullptr);
  write_end = node::FileDescriptor();
  EXPECT_EQ(::waitpid(child, nullptr, 0), child);
}

}  // namespace
}  // namespace kolo::internal::transport
