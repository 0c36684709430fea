// SPDX-License-Identifier: Apache-2.0
// TCP sockets that do not block: listening, connecting, options.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "node/file_descriptor.hpp"
#include "transport/socket_address.hpp"

namespace kolo::internal::transport {

struct Endpoint {
  std::string host{};  // a name or an address; empty: all interfaces
  std::uint16_t port = 0;
};

/// From "host:4711", "10.0.0.1:4711" or "[fd00::1]:4711". Throws InvalidArgument.
[[nodiscard]] Endpoint parse_endpoint(std::string_view text);
[[nodiscard]] std::string to_string(const Endpoint& endpoint);

/// True if the name is known, and all its addresses are loopback addresses.
[[nodiscard]] bool is_loopback(const std::string& host);

/// A socket that accepts connections. Port 0: the system chooses one. An invalid descriptor, and
/// errno, if the address cannot be used.
[[nodiscard]] node::FileDescriptor listen_on(const SystemAddress& address);
/// The first address of the endpoint that can be used. Throws BackendError.
[[nodiscard]] node::FileDescriptor listen_at(const Endpoint& endpoint);
/// The socket's own address; of family AF_UNSPEC if it has none.
[[nodiscard]] SocketAddress address_of(int socket);

/// Begins a connection. `socket` is invalid if the address cannot be used.
struct Connecting {
  node::FileDescriptor socket{};
  int error = 0;  // EINPROGRESS: not connected yet; 0: connected; else why not
};
[[nodiscard]] Connecting begin_to_connect(const SystemAddress& address);
/// How a connection in progress has ended: 0, or the error. None if it has not ended after
/// `timeout`.
[[nodiscard]] std::optional<int> end_of_connecting(int socket, std::chrono::nanoseconds timeout);

/// Tries all addresses of the host, again and again while nobody listens there, until the timeout.
/// Calls `while_waiting` before each new attempt. Throws BackendError.
[[nodiscard]] node::FileDescriptor connect_to(const Endpoint& endpoint,
                                              std::chrono::nanoseconds timeout,
                                              const std::function<void()>& while_waiting = {});

/// A connection that waits to be accepted. An invalid descriptor, and errno, if there is none.
[[nodiscard]] node::FileDescriptor accept_connection(int listener);
/// The other side of a connection that was accepted, for people.
[[nodiscard]] std::string peer_name(int socket);

/// Small messages leave at once.
void disable_delay(int socket);
/// Small messages leave at once, and a host that has gone is noticed after `silence`.
void tune(int socket, std::chrono::nanoseconds silence);

}  // namespace kolo::internal::transport
