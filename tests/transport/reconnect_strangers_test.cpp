// SPDX-License-Identifier: Apache-2.0
// Strangers who call a rank in another's place.
#include "reconnect_fixture.hpp"

namespace kolo::internal::transport {
namespace {

using testing::HasSubstr;

class ReconnectStrangers : public ReconnectTest {
 protected:
  node::FileDescriptor call_callee() {
    Connecting call = begin_to_connect(callee_.listeners->addresses().at(0).to_system());
    if (call.error == EINPROGRESS) call.error = *end_of_connecting(call.socket.get(), too_long);
    EXPECT_EQ(call.error, 0);
    return std::move(call.socket);
  }
  static void say(const node::FileDescriptor& socket, const Message& bytes) {
    EXPECT_EQ(::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  /// True once the other side has closed the connection. Reads what it has sent before.
  static bool is_closed(const node::FileDescriptor& socket) {
    std::array<std::byte, 256> buffer;
    ssize_t bytes = 0;
    do bytes = ::recv(socket.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
    while (bytes > 0);
    return bytes == 0 || errno == ECONNRESET;
  }
  /// A process that knows this secret, and completes a handshake as rank 3.
  std::optional<Connection> shake_hands(const Secret& secret, Parties::Kind kind) {
    PeerConnector stranger(3, secret, *caller_.listeners, {},
                           {{7, "host-b", callee_.listeners->addresses()}}, kind);
    bool made = false;
    const auto until = steady_clock::now() + 500ms;
    while (!made && steady_clock::now() < until) {
      made = stranger.step(0ms);
      callee_.poll();
    }
    if (!made) return std::nullopt;
    return std::move(stranger.take().at(0));
  }
  static Message record(const FrameKey& fresh, std::span<const std::byte> first,
                        std::uint64_t taken) {
    const auto number = std::as_bytes(std::span(&taken, 1));
    const FrameTag tag = tag_of(fresh, 0, number, first);
    Message bytes(number.begin(), number.end());
    bytes.insert(bytes.end(), tag.begin(), tag.end());
    return bytes;
  }
  /// The first connection still serves.
  void expect_undisturbed() {
    send(caller_, 10);
    send(callee_, 20);
    expect_all();
    EXPECT_EQ(relay_.connections(), 0U);
  }
};

TEST_F(ReconnectStrangers, AReplayedCallIsRefused) {
  connect();
  send(caller_, 10);
  relay_.break_all();
  send(caller_, 20);
  expect_all();
  ASSERT_EQ(relay_.recorded().size(), 1U);
  for (const bool at_once : {true, false}) {
    // All that the caller has sent on the connection, and its parts by and by.
    const Message recorded = relay_.recorded()[0];
    const node::FileDescriptor stranger = call_callee();
    for (std::size_t at = 0; at < recorded.size();) {
      const std::size_t part =
          at_once ? recorded.size() : std::min<std::size_t>(8, recorded.size() - at);
      if (is_closed(stranger)) break;
      static_cast<void>(::send(stranger.get(), recorded.data() + at, part, MSG_NOSIGNAL));
      at += part;
      for (int i = 0; i < 10; ++i) poll_until([] { return true; });
    }
    poll_until([&] { return is_closed(stranger); });
  }
  send(caller_, 30);
  send(callee_, 40);
  expect_all();
  EXPECT_EQ(relay_.connections(), 1U);
}

TEST_F(ReconnectStrangers, AnotherSecretAndAnotherPurposeAreRefused) {
  connect();
  EXPECT_FALSE(shake_hands(make_secret(6), Parties::Kind::resumption));
  EXPECT_FALSE(shake_hands(secret_, Parties::Kind::control));
  expect_undisturbed();
}

/// A process of the session that does not know the keys of the first connection, or names frames
/// that do not fit.
TEST_F(ReconnectStrangers, AnotherConnectionOfTheSessionIsRefused) {
  connect();
  send(caller_, 10);
  send(callee_, 20);
  expect_all();
  const FrameKey first = caller_.keys.sent;
  const FrameKey other = make_secret(8);
  struct Case {
    const char* what;
    std::span<const std::byte> first;
    std::uint64_t taken;
    bool altered;
  };
  for (const Case& wrong :
       {Case{"of another connection", other, 1, false}, Case{"of no connection", {}, 1, false},
        Case{"altered", first, 1, true}, Case{"of frames that were not sent", first, 1000, false},
        Case{"of many frames", first, ~std::uint64_t{0}, false}}) {
    const auto made = shake_hands(secret_, Parties::Kind::resumption);
    ASSERT_TRUE(made) << wrong.what;
    Message bytes = record(made->keys.sent, wrong.first, wrong.taken);
    if (wrong.altered) bytes[0] ^= std::byte{1};
    say(made->socket, bytes);
    poll_until([&] { return is_closed(made->socket); });
    send(caller_, 1);
    send(callee_, 2);
    expect_all();
    EXPECT_EQ(relay_.connections(), 0U) << wrong.what;
  }
}

/// The caller may have called twice, and chosen the other connection.
TEST_F(ReconnectStrangers, AConnectionWithoutARecordChangesNothing) {
  connect();
  const auto idle = shake_hands(secret_, Parties::Kind::resumption);
  ASSERT_TRUE(idle);
  expect_undisturbed();
  relay_.break_all();
  send(callee_, 5);
  expect_all();
  EXPECT_EQ(relay_.connections(), 1U);
}

TEST_F(ReconnectStrangers, AnAlteredFrameIsALossAsBefore) {
  connect(/*through_relay=*/true);
  const auto made = shake_hands(secret_, Parties::Kind::resumption);
  ASSERT_TRUE(made);
  // Somebody who knows all keys but sends a frame with a wrong tag.
  say(made->socket, record(made->keys.sent, caller_.keys.sent, 0));
  say(made->socket, Message(40));
  poll_until([&] { return callee_.transport->loss() != nullptr; });
  EXPECT_THAT(callee_.loss(), HasSubstr("a frame of rank 3 was altered, lost or repeated"));
}

TEST_F(ReconnectStrangers, StrangersDoNotKeepARankAwake) {
  connect();
  std::vector<node::FileDescriptor> strangers;
  for (int i = 0; i < 20; ++i) strangers.push_back(call_callee());
  strangers.clear();
  poll_until([&] { return !callee_.readable(); });
  // Nobody calls rank 3, which turns everybody away.
  Connecting call = begin_to_connect(caller_.listeners->addresses().at(0).to_system());
  poll_until([&] { return is_closed(call.socket); });
  poll_until([&] { return !caller_.readable(); });
  expect_undisturbed();
}

}  // namespace
}  // namespace kolo::internal::transport
