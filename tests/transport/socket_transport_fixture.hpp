// SPDX-License-Identifier: Apache-2.0
// Two ends of a SocketTransport in one process.
#pragma once

#include <gmock/gmock.h>
#include <poll.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "socket_fixture.hpp"
#include "transport/control/socket_transport.hpp"

namespace kolo::internal::transport {

/// Two ranks, each with a clock that stands still until it is moved.
class SocketTransportTest : public testing::Test {
 protected:
  struct End {
    steady_clock::time_point now{};
    std::chrono::nanoseconds acknowledged_ago = std::chrono::nanoseconds::max();
    std::size_t max_unsent = max_unsent_bytes;
    std::vector<Message> arrived{};
    std::optional<SocketTransport> transport{};

    /// Adds the messages that have arrived since the last call, after which this end was stopped
    /// for `pause`.
    void poll(std::chrono::nanoseconds pause = 0s) {
      transport->set_time(now, pause);
      transport->poll([this](int, std::span<const std::byte> message) {
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(message.data()) % 8, 0U);
        arrived.emplace_back(message.begin(), message.end());
      });
    }
    [[nodiscard]] bool readable() const {
      pollfd descriptor{.fd = transport->descriptor(), .events = POLLIN, .revents = 0};
      return ::poll(&descriptor, 1, 0) == 1;
    }
  };

  void connect(std::chrono::nanoseconds peer_timeout = 0s,
               const FrameKeys& other_keys = reversed(keys_of(1))) {
    auto [first, second] = make_connection();
    raw_ = first.get();
    make(a_, 7, "host-b", std::move(first), peer_timeout, keys_of(1));
    make(b_, 3, "host-a", std::move(second), peer_timeout, other_keys);
  }

  template <typename Done>
  void poll_until(Done done) {
    const auto until = steady_clock::now() + too_long;
    while (!done() && steady_clock::now() < until) {
      a_.poll();
      b_.poll();
    }
    EXPECT_TRUE(done());
  }

  End a_;  // rank 3
  End b_;  // rank 7
  int raw_ = -1;

 private:
  static void make(End& end, int peer, const char* host, node::FileDescriptor socket,
                   std::chrono::nanoseconds peer_timeout, const FrameKeys& keys) {
    std::vector<SocketPeer> peers;
    peers.push_back({peer, host, {peer, peer + 1}, std::move(socket), keys});
    end.transport.emplace(
        std::move(peers),
        SocketOptions{.peer_timeout = peer_timeout,
                      .acknowledged_ago = [&end](int) { return end.acknowledged_ago; },
                      .max_unsent = end.max_unsent});
    end.transport->set_time(end.now, 0s);
  }
};

}  // namespace kolo::internal::transport
