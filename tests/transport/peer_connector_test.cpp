// SPDX-License-Identifier: Apache-2.0
#include "transport/peer_connector.hpp"

#include <gmock/gmock.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <filesystem>
#include <iterator>
#include <string>

#include "socket_fixture.hpp"

namespace kolo::internal::transport {
namespace {

using testing::HasSubstr;

/// Several ranks, until all are there or the time is over.
bool meet(std::vector<PeerConnector*> ranks, std::chrono::nanoseconds time = too_long) {
  const auto until = steady_clock::now() + time;
  while (steady_clock::now() < until) {
    bool all = true;
    for (PeerConnector* rank : ranks) all = rank->step(1ms) && all;
    if (all) return true;
  }
  return false;
}

/// Connected, with nothing said.
node::FileDescriptor call(const SocketAddress& address) {
  node::FileDescriptor socket(::socket(AF_INET, SOCK_STREAM, 0));
  const SystemAddress to = address.to_system();
  EXPECT_EQ(::connect(socket.get(), to.get(), to.length), 0);
  return socket;
}

void say(const node::FileDescriptor& socket, const std::string& text) {
  EXPECT_EQ(::send(socket.get(), text.data(), text.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(text.size()));
}

std::size_t open_descriptors() {
  using Entries = std::filesystem::directory_iterator;
  return static_cast<std::size_t>(std::distance(Entries("/proc/self/fd"), Entries()));
}

/// An address where nobody listens.
SocketAddress deserted() { return Listeners({loopback()}).addresses().at(0); }

TEST(Listeners, TakeTheFreePortsOfARange) {
  const Listeners any({loopback()});
  const std::uint16_t taken = any.addresses().at(0).port;
  EXPECT_TRUE(Listeners({loopback()}, {taken, taken}).sockets().empty());
  // The next port may be in use by others, too.
  const auto last = static_cast<std::uint16_t>(std::min(taken + 100, 65535));
  const Listeners next({loopback()}, {taken, last});
  ASSERT_EQ(next.sockets().size(), taken == last ? 0U : 1U);
  if (taken == last) return;
  EXPECT_GT(next.addresses().at(0).port, taken);
  EXPECT_LE(next.addresses().at(0).port, last);
}

TEST(PeerConnector, ATreeOfRanksMeets) {
  const Listeners at_root({loopback()});
  const Listeners at_one({loopback()});
  const Listeners none({});
  PeerConnector zero(0, make_secret(1), at_root, {{1, "b"}, {2, "c"}}, {});
  PeerConnector one(1, make_secret(1), at_one, {{3, "d"}}, {{0, "a", at_root.addresses()}});
  PeerConnector two(2, make_secret(1), none, {}, {{0, "a", at_root.addresses()}});
  PeerConnector three(3, make_secret(1), none, {}, {{1, "b", at_one.addresses()}});
  ASSERT_TRUE(meet({&zero, &one, &two, &three}));
  for (PeerConnector* rank : {&zero, &one, &two, &three}) EXPECT_EQ(rank->problem(), "");
  const auto ranks_of = [](PeerConnector& connector) {
    std::vector<int> ranks;
    for (const Connection& connection : connector.take()) ranks.push_back(connection.rank);
    return ranks;
  };
  EXPECT_THAT(ranks_of(zero), testing::UnorderedElementsAre(1, 2));
  EXPECT_THAT(ranks_of(one), testing::UnorderedElementsAre(0, 3));
  EXPECT_THAT(ranks_of(two), testing::ElementsAre(0));
  EXPECT_THAT(ranks_of(three), testing::ElementsAre(1));
}

TEST(PeerConnector, StrangersHoldUpNobody) {
  const Listeners listeners({loopback()});
  const SocketAddress& door = listeners.addresses().at(0);
  const node::FileDescriptor silent = call(door);
  const node::FileDescriptor half = call(door);
  say(half, "kolo");
  const node::FileDescriptor loud = call(door);
  say(loud, std::string(1000, 'k'));
  const node::FileDescriptor gone = call(door);
  EXPECT_EQ(::shutdown(gone.get(), SHUT_RDWR), 0);
  PeerConnector called(0, make_secret(2), listeners, {{1, "b"}}, {});
  PeerConnector caller(1, make_secret(2), listeners, {}, {{0, "a", {door}}});
  EXPECT_TRUE(meet({&called, &caller}));
}

TEST(PeerConnector, ManyStrangersHoldUpNobody) {
  const Listeners listeners({loopback()});
  const SocketAddress& door = listeners.addresses().at(0);
  PeerConnector called(0, make_secret(2), listeners, {{1, "b"}}, {});
  std::vector<node::FileDescriptor> strangers;
  for (int i = 0; i < 400; ++i) {
    strangers.push_back(call(door));
    EXPECT_FALSE(called.step(0ms));
  }
  PeerConnector caller(1, make_secret(2), listeners, {}, {{0, "a", {door}}});
  EXPECT_TRUE(meet({&called, &caller}));
}

TEST(PeerConnector, WhoHasSaidWhoItIsIsNotDroppedForSilentStrangers) {
  const Listeners listeners({loopback()});
  const SocketAddress& door = listeners.addresses().at(0);
  PeerConnector called(0, make_secret(2), listeners, {{1, "b"}}, {});
  PeerConnector caller(1, make_secret(2), listeners, {}, {{0, "a", {door}}});
  // The caller connects and says hello. It has one connection only, because it looks no more.
  EXPECT_FALSE(caller.step(0ms));
  EXPECT_FALSE(caller.step(0ms));
  EXPECT_FALSE(called.step(1s));
  std::vector<node::FileDescriptor> strangers;
  for (int i = 0; i < 400; ++i) {
    strangers.push_back(call(door));
    EXPECT_FALSE(called.step(0ms));
  }
  EXPECT_FALSE(caller.step(1s)) << "its proof is on its way";
  EXPECT_EQ(caller.problem(), "cannot reach rank 0 on host a (" + to_string(door) + ": no answer)");
  // No step is left for a second connection.
  EXPECT_TRUE(called.step(1s));
  EXPECT_TRUE(caller.step(1s));
}

// The callee makes room after its welcome, while the caller's proof is on its way.
TEST(PeerConnector, ACallerThatWasDroppedCallsAgain) {
  const Listeners listeners({loopback()});
  const SocketAddress& door = listeners.addresses().at(0);
  PeerConnector called(0, make_secret(2), listeners, {{1, "b"}}, {});
  PeerConnector caller(1, make_secret(2), listeners, {}, {{0, "a", {door}}});
  EXPECT_FALSE(caller.step(0ms));
  EXPECT_FALSE(caller.step(0ms));
  EXPECT_FALSE(called.step(1s));
  // Strangers say who they are, so none of them is dropped before the rank.
  const Parties claimed{.kind = Parties::Kind::control, .caller = 1, .callee = 0, .at = door};
  const Handshake::Bytes hello =
      Handshake(Handshake::Side::caller, make_secret(3), claimed).begin();
  std::vector<node::FileDescriptor> strangers;
  for (int i = 0; i < 300; ++i) {
    strangers.push_back(call(door));
    EXPECT_EQ(::send(strangers.back().get(), hello.data(), hello.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(hello.size()));
    EXPECT_FALSE(called.step(0ms));
  }
  EXPECT_FALSE(caller.step(1s)) << "nobody has confirmed its connection";
  EXPECT_TRUE(meet({&called, &caller}));
}

// Strangers who claim to be a rank do not take all places, so that a caller has time to say who it
// is, however many silent ones come after it.
TEST(PeerConnector, WhoHasJustCalledIsNotDroppedForSilentStrangersAmongFalseRanks) {
  const Listeners listeners({loopback()});
  const SocketAddress& door = listeners.addresses().at(0);
  PeerConnector called(0, make_secret(2), listeners, {{1, "b"}, {2, "b"}}, {});
  const Parties claimed{.kind = Parties::Kind::control, .caller = 1, .callee = 0, .at = door};
  const Handshake::Bytes hello =
      Handshake(Handshake::Side::caller, make_secret(3), claimed).begin();
  std::vector<node::FileDescriptor> strangers;
  const auto let_in = [&](int count, bool speak) {
    for (int i = 0; i < count; ++i) {
      strangers.push_back(call(door));
      if (speak) {
        ASSERT_EQ(::send(strangers.back().get(), hello.data(), hello.size(), MSG_NOSIGNAL),
                  static_cast<ssize_t>(hello.size()));
      }
      EXPECT_FALSE(called.step(0ms));
    }
  };
  let_in(300, /*speak=*/true);
  const node::FileDescriptor caller = call(door);
  EXPECT_FALSE(called.step(1s));
  // Fewer than half of the places that there are at the usual limit of descriptors.
  let_in(40, /*speak=*/false);
  Handshake handshake(Handshake::Side::caller, make_secret(2),
                      {.kind = Parties::Kind::control, .caller = 2, .callee = 0, .at = door});
  const auto say_bytes = [&](const Handshake::Bytes& bytes) {
    EXPECT_EQ(::send(caller.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
    EXPECT_FALSE(called.step(1s)) << "rank 1 has not called";
  };
  const auto answer = [&] {
    Handshake::Bytes received(handshake.awaited_bytes());
    pollfd waits{.fd = caller.get(), .events = POLLIN, .revents = 0};
    EXPECT_EQ(::poll(&waits, 1, 20'000), 1);
    EXPECT_EQ(::recv(caller.get(), received.data(), received.size(), MSG_DONTWAIT),
              static_cast<ssize_t>(received.size()));
    return handshake.answer(received);
  };
  say_bytes(handshake.begin());
  const auto proof = answer();
  ASSERT_TRUE(proof);
  let_in(300, /*speak=*/true);
  say_bytes(*proof);
  EXPECT_TRUE(answer() && handshake.is_complete());
}

TEST(PeerConnector, AsManyCallersAsThereAreRanksAreAllAnswered) {
  constexpr int ranks = 300;
  const Listeners listeners({loopback()});
  const SocketAddress& door = listeners.addresses().at(0);
  std::vector<Caller> awaited;
  for (int rank = 1; rank <= ranks; ++rank) awaited.push_back({rank, "b"});
  PeerConnector called(0, make_secret(2), listeners, awaited, {});
  std::vector<node::FileDescriptor> callers;
  for (int rank = 1; rank <= ranks; ++rank) {
    callers.push_back(call(door));
    const Parties parties{.kind = Parties::Kind::control, .caller = rank, .callee = 0, .at = door};
    const Handshake::Bytes hello =
        Handshake(Handshake::Side::caller, make_secret(2), parties).begin();
    EXPECT_EQ(::send(callers.back().get(), hello.data(), hello.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(hello.size()));
    if (rank % 50 == 0) {
      EXPECT_FALSE(called.step(0ms));
    }
  }
  EXPECT_FALSE(called.step(0ms));
  std::array<std::byte, Handshake::welcome_bytes> welcome{};
  for (const node::FileDescriptor& caller : callers)
    EXPECT_EQ(::recv(caller.get(), welcome.data(), welcome.size(), MSG_DONTWAIT),
              static_cast<ssize_t>(welcome.size()));
}

TEST(PeerConnector, AStepAcceptsNoMoreThanItsShare) {
  const Listeners listeners({loopback()});
  PeerConnector called(0, make_secret(2), listeners, {{1, "b"}}, {});
  std::vector<node::FileDescriptor> strangers;
  for (int i = 0; i < 120; ++i) strangers.push_back(call(listeners.addresses().at(0)));
  const std::size_t before = open_descriptors();
  EXPECT_FALSE(called.step(0ms));
  EXPECT_LE(open_descriptors(), before + 64);
  EXPECT_GT(open_descriptors(), before);
}

TEST(PeerConnector, WhoDoesNotKnowTheSecretIsDropped) {
  const Listeners listeners({loopback()});
  PeerConnector called(0, make_secret(3), listeners, {{1, "b"}}, {});
  PeerConnector stranger(1, make_secret(4), listeners, {}, {{0, "a", listeners.addresses()}});
  EXPECT_FALSE(meet({&called, &stranger}, 300ms));
  EXPECT_EQ(called.problem(), "received no connection from rank 1 on host b");
  EXPECT_THAT(stranger.problem(), HasSubstr("cannot reach rank 0 on host a (127.0.0.1:"));
  PeerConnector caller(1, make_secret(3), listeners, {}, {{0, "a", listeners.addresses()}});
  EXPECT_TRUE(meet({&called, &caller}));
}

/// Stands between two ranks, passes on what they say, and keeps it.
class Eavesdropper {
 public:
  explicit Eavesdropper(const SocketAddress& to) : to_(to) {}

  [[nodiscard]] const SocketAddress& address() const { return listeners_.addresses().at(0); }
  [[nodiscard]] const std::string& heard() const { return heard_; }

  void step() {
    if (!caller_.valid())
      caller_ = node::FileDescriptor(
          ::accept4(listeners_.sockets().at(0).get(), nullptr, nullptr, SOCK_NONBLOCK));
    if (!caller_.valid()) return;
    if (!called_.valid()) called_ = call(to_);
    pass_on(caller_, called_, &heard_);
    pass_on(called_, caller_, nullptr);
  }

 private:
  static void pass_on(const node::FileDescriptor& from, const node::FileDescriptor& to,
                      std::string* heard) {
    std::array<char, 1024> buffer{};
    const ssize_t bytes = ::recv(from.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (bytes <= 0) return;
    const std::string text(buffer.data(), static_cast<std::size_t>(bytes));
    if (heard != nullptr) *heard += text;
    say(to, text);
  }

  SocketAddress to_;
  Listeners listeners_{{loopback()}};
  node::FileDescriptor caller_{};
  node::FileDescriptor called_{};
  std::string heard_{};
};

/// Two ranks with somebody between them.
bool meet_through(Eavesdropper& between, PeerConnector& called, PeerConnector& caller) {
  const auto until = steady_clock::now() + 300ms;
  bool all = false;
  while (!all && steady_clock::now() < until) {
    all = caller.step(1ms);
    all = called.step(1ms) && all;
    between.step();
  }
  return all;
}

// Each address may exist on several hosts, such as those of container networks.
TEST(PeerConnector, ARankCannotBeReachedThroughAnotherAddress) {
  const Secret secret = make_secret(8);
  const Listeners listeners({loopback()});
  const SocketAddress& door = listeners.addresses().at(0);
  Eavesdropper between(door);
  PeerConnector called(0, secret, listeners, {{1, "b"}}, {});
  PeerConnector caller(1, secret, listeners, {}, {{0, "a", {between.address()}}});
  EXPECT_FALSE(meet_through(between, called, caller));
  EXPECT_EQ(called.missing(), std::vector<int>{1});
  EXPECT_THAT(caller.problem(), HasSubstr("another process answers"));
  ASSERT_FALSE(between.heard().empty());
  for (std::size_t i = 0; i + 8 <= secret.size(); ++i)
    EXPECT_EQ(between.heard().find(std::string(reinterpret_cast<const char*>(&secret.at(i)), 8)),
              std::string::npos);
  // The rank itself is not kept away by that.
  PeerConnector direct(1, secret, listeners, {}, {{0, "a", {door}}});
  EXPECT_TRUE(meet({&called, &direct}));
}

/// What a caller says in a handshake with `callee`, which this test plays.
std::string say_handshake(Handshake callee, PeerConnector& caller, const Listeners& listeners) {
  node::FileDescriptor socket;
  std::string said;
  const auto until = steady_clock::now() + too_long;
  while (!callee.is_trusted() && steady_clock::now() < until) {
    caller.step(1ms);
    if (!socket.valid())
      socket = node::FileDescriptor(
          ::accept4(listeners.sockets().at(0).get(), nullptr, nullptr, SOCK_NONBLOCK));
    std::array<std::byte, Handshake::max_bytes> buffer{};
    const std::size_t awaited = callee.awaited_bytes();
    if (!socket.valid() ||
        ::recv(socket.get(), buffer.data(), awaited, 0) != static_cast<ssize_t>(awaited))
      continue;
    said.append(reinterpret_cast<const char*>(buffer.data()), awaited);
    const auto answer = callee.answer(std::span(buffer).first(awaited));
    EXPECT_TRUE(answer.has_value());
    ::send(socket.get(), answer->data(), answer->size(), MSG_NOSIGNAL);
  }
  return said;
}

TEST(PeerConnector, WhoHeardAHandshakeCannotRepeatIt) {
  const Secret secret = make_secret(8);
  const Listeners listeners({loopback()});
  const SocketAddress& door = listeners.addresses().at(0);
  PeerConnector caller(1, secret, listeners, {}, {{0, "a", {door}}});
  const std::string said =
      say_handshake(Handshake(Handshake::Side::callee, secret,
                              {.kind = Parties::Kind::control, .callee = 0, .at = door}),
                    caller, listeners);
  ASSERT_EQ(said.size(), Handshake::hello_bytes + Handshake::proof_bytes);
  PeerConnector again(0, secret, listeners, {{1, "b"}}, {});
  const node::FileDescriptor stranger = call(door);
  say(stranger, said);
  EXPECT_FALSE(meet({&again}, 300ms));
  EXPECT_EQ(again.missing(), std::vector<int>{1});
}

TEST(PeerConnector, BothSidesHaveTheSameKeys) {
  const Listeners listeners({loopback()});
  PeerConnector called(0, make_secret(9), listeners, {{1, "b"}}, {});
  PeerConnector caller(1, make_secret(9), listeners, {}, {{0, "a", listeners.addresses()}});
  ASSERT_TRUE(meet({&called, &caller}));
  const FrameKeys here = called.take().at(0).keys;
  const FrameKeys there = caller.take().at(0).keys;
  EXPECT_EQ(here.sent, there.received);
  EXPECT_EQ(here.received, there.sent);
  EXPECT_NE(here.sent, here.received);
}

TEST(PeerConnector, OnlyTheRankThatWasMeantAnswers) {
  // Another rank of the session listens there.
  const Listeners listeners({loopback()});
  PeerConnector other(5, make_secret(5), listeners, {{1, "b"}}, {});
  PeerConnector caller(1, make_secret(5), listeners, {}, {{0, "a", listeners.addresses()}});
  EXPECT_FALSE(meet({&other, &caller}, 300ms));
  EXPECT_EQ(other.problem(), "received no connection from rank 1 on host b");
}

TEST(PeerConnector, GoesOnToTheNextAddress) {
  // At the first nobody listens, at the second somebody says nothing.
  const Listeners silent({loopback()});
  const Listeners listeners({loopback()});
  PeerConnector called(0, make_secret(6), listeners, {{1, "b"}}, {});
  PeerConnector caller(
      1, make_secret(6), listeners, {},
      {{0, "a", {deserted(), silent.addresses().at(0), listeners.addresses().at(0)}}});
  EXPECT_TRUE(meet({&called, &caller}));
}

TEST(PeerConnector, SaysWhatWasTried) {
  const Listeners none({});
  const Listeners silent({loopback()});
  PeerConnector caller(1, make_secret(7), none, {}, {{0, "a", {deserted()}}});
  EXPECT_FALSE(meet({&caller}, 50ms));
  EXPECT_THAT(caller.problem(), HasSubstr("Connection refused"));
  PeerConnector waiting(1, make_secret(7), none, {}, {{0, "a", silent.addresses()}});
  EXPECT_FALSE(meet({&waiting}, 50ms));
  EXPECT_THAT(waiting.problem(), HasSubstr("no answer"));
  PeerConnector lost(1, make_secret(7), none, {}, {{0, "a", {}}});
  EXPECT_FALSE(meet({&lost}, 50ms));
  EXPECT_THAT(lost.problem(), HasSubstr("it has no reachable address"));
}

}  // namespace
}  // namespace kolo::internal::transport
