// SPDX-License-Identifier: Apache-2.0
// Ranks that are objects of one process, connected over loopback.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "transport/control/socket_transport.hpp"
#include "transport/peer_connector.hpp"
#include "transport/sockets.hpp"

namespace kolo::internal::transport {

using namespace std::chrono_literals;
using std::chrono::steady_clock;

// A timeout that no test reaches.
constexpr std::chrono::nanoseconds too_long = 30s;

inline SocketAddress loopback() {
  SocketAddress address;
  address.family = AF_INET;
  address.bytes = {127, 0, 0, 1};
  return address;
}

inline Secret make_secret(int seed) {
  Secret secret{};
  for (std::size_t i = 0; i < secret.size(); ++i)
    secret[i] = static_cast<std::byte>(i * 7 + static_cast<std::size_t>(seed));
  return secret;
}

/// Keys of one side of a connection; the other side has the same in reverse.
inline FrameKeys keys_of(int number) {
  return {.sent = make_secret(number), .received = make_secret(number + 1)};
}
inline FrameKeys reversed(const FrameKeys& keys) { return {keys.received, keys.sent}; }

/// Two connected sockets in non-blocking mode: the connecting one, and the accepted one.
inline std::pair<node::FileDescriptor, node::FileDescriptor> make_connection() {
  const Listeners listeners({loopback()});
  PeerConnector called(0, make_secret(0), listeners, {{1, "b"}}, {});
  PeerConnector caller(1, make_secret(0), listeners, {}, {{0, "a", listeners.addresses()}});
  const auto until = steady_clock::now() + too_long;
  while (steady_clock::now() < until) {
    const bool one = called.step(1ms);
    if (caller.step(1ms) && one) break;
  }
  return {std::move(caller.take().at(0).socket), std::move(called.take().at(0).socket)};
}

/// Bytes that depend on the sender, the message and the position.
inline Message pattern(int sender, int number, std::size_t bytes) {
  Message message(bytes);
  for (std::size_t i = 0; i < bytes; ++i)
    message[i] =
        static_cast<std::byte>(i * 31 + i / 256 + static_cast<std::size_t>(sender * 7 + number));
  return message;
}

}  // namespace kolo::internal::transport
