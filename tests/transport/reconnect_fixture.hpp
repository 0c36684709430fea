// SPDX-License-Identifier: Apache-2.0
// Two ranks whose connection breaks.
#pragma once

#include <gmock/gmock.h>
#include <poll.h>

#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "relay.hpp"
#include "socket_fixture.hpp"
#include "transport/control/socket_transport.hpp"

namespace kolo::internal::transport {

/// Rank 3 has called rank 7, and calls it again through the relay. Their clocks stand still.
class ReconnectTest : public testing::Test {
 protected:
  struct End {
    int rank = 0;
    std::shared_ptr<const Listeners> listeners =
        std::make_shared<Listeners>(std::vector{loopback()});
    std::size_t max_unsent = max_unsent_bytes;
    std::size_t window = SocketEdge::default_window;
    FrameKeys keys{};
    steady_clock::time_point now{};
    std::chrono::nanoseconds acknowledged_ago = std::chrono::nanoseconds::max();
    std::vector<Message> arrived{};
    std::optional<SocketTransport> transport{};

    void poll() {
      transport->set_time(now, 0s);
      transport->poll([this](int, std::span<const std::byte> message) {
        arrived.emplace_back(message.begin(), message.end());
      });
    }
    [[nodiscard]] bool readable() const {
      pollfd descriptor{.fd = transport->descriptor(), .events = POLLIN, .revents = 0};
      return ::poll(&descriptor, 1, 0) == 1;
    }
    [[nodiscard]] std::string loss() const {
      return transport->loss() == nullptr ? "" : transport->loss()->message;
    }
  };

  /// `through_relay`: the first connection, too.
  void connect(bool through_relay = true, std::chrono::nanoseconds peer_timeout = 30s) {
    PeerConnector called(7, secret_, *callee_.listeners, {{3, "host-a"}}, {});
    PeerConnector calls(3, secret_, *caller_.listeners, {},
                        {{7, "host-b", callee_.listeners->addresses()}});
    const auto until = steady_clock::now() + too_long;
    for (bool all = false; !all && steady_clock::now() < until;) {
      all = called.step(0ms);
      all = calls.step(0ms) && all;
    }
    Connection at_caller = std::move(calls.take().at(0));
    Connection at_callee = std::move(called.take().at(0));
    if (through_relay) {
      auto [outer, inner] = make_connection();
      relay_.add(std::move(inner), std::move(at_caller.socket));
      at_caller.socket = std::move(outer);
    }
    caller_.keys = at_caller.keys;
    callee_.keys = at_callee.keys;
    make(caller_, callee_, std::move(at_caller.socket), peer_timeout);
    make(callee_, caller_, std::move(at_callee.socket), peer_timeout);
    poll_until([&] { return !caller_.readable() && !callee_.readable(); });
  }

  template <typename Done>
  void poll_until(Done done) {
    const auto until = steady_clock::now() + too_long;
    do {
      relay_.step();
      if (caller_.transport) caller_.poll();
      if (callee_.transport) callee_.poll();
    } while (!done() && steady_clock::now() < until);
    EXPECT_TRUE(done());
  }

  void send(End& from, std::size_t bytes) {
    int& number = numbers_[from.rank == 3 ? 0 : 1];
    sizes_[from.rank == 3 ? 0 : 1].push_back(bytes);
    from.transport->send(from.rank == 3 ? 7 : 3, pattern(from.rank, number++, bytes));
  }
  /// Waits until all that was sent has arrived, once and in order.
  void expect_all() {
    poll_until([&] {
      return (caller_.arrived.size() >= sizes_[1].size() &&
              callee_.arrived.size() >= sizes_[0].size()) ||
             caller_.transport->loss() != nullptr || callee_.transport->loss() != nullptr;
    });
    EXPECT_EQ(caller_.loss(), "");
    EXPECT_EQ(callee_.loss(), "");
    expect_arrived(caller_.arrived, 7, sizes_[1]);
    expect_arrived(callee_.arrived, 3, sizes_[0]);
  }

  const Secret secret_ = make_secret(5);
  End caller_{.rank = 3};
  End callee_{.rank = 7};
  Relay relay_{callee_.listeners->addresses().at(0)};

 private:
  void make(End& end, const End& other, node::FileDescriptor socket,
            std::chrono::nanoseconds peer_timeout) {
    std::vector<SocketPeer> peers;
    peers.push_back({.rank = other.rank,
                     .host = other.rank == 7 ? "host-b" : "host-a",
                     .ranks_of_host = {other.rank, other.rank + 1},
                     .socket = std::move(socket),
                     .keys = end.keys,
                     .is_called = other.rank == 7,
                     .addresses = other.listeners->addresses()});
    end.transport.emplace(
        std::move(peers),
        SocketOptions{.peer_timeout = peer_timeout,
                      .reconnect =
                          ReconnectOptions{
                              .rank = end.rank,
                              .secret = secret_,
                              .listeners = end.listeners,
                              .connect = [this](const SocketAddress&) { return relay_.connect(); }},
                      .acknowledged_ago = [&end](int) { return end.acknowledged_ago; },
                      .max_unsent = end.max_unsent,
                      .window = end.window});
  }

  static void expect_arrived(const std::vector<Message>& arrived, int from,
                             const std::vector<std::size_t>& sizes) {
    ASSERT_EQ(arrived.size(), sizes.size());
    for (std::size_t at = 0; at < sizes.size(); ++at)
      ASSERT_EQ(arrived[at], pattern(from, static_cast<int>(at), sizes[at])) << at;
  }

  std::array<int, 2> numbers_{};
  std::array<std::vector<std::size_t>, 2> sizes_{};
};

}  // namespace kolo::internal::transport
