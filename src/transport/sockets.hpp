// SPDX-License-Identifier: Apache-2.0
// Non-blocking TCP sockets: listening, connecting and options.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/port_range.hpp"
#include "base/session_clock.hpp"
#include "node/file_descriptor.hpp"
#include "transport/socket_address.hpp"

namespace kolo::internal::transport {

struct Endpoint {
  std::string host{};  // a name or an address; "": all interfaces
  std::uint16_t port = 0;
};

/// Parses "host:4711", "10.0.0.1:4711" or "[fd00::1]:4711". Throws InvalidArgument.
[[nodiscard]] Endpoint parse_endpoint(std::string_view text);
[[nodiscard]] std::string to_string(const Endpoint& endpoint);

/// True if the name can be resolved, and all its addresses are loopback addresses.
[[nodiscard]] bool is_loopback(const std::string& host);

/// A socket that listens for connections. With port 0, the system chooses a port. Returns an
/// invalid descriptor and sets errno if the address cannot be used.
[[nodiscard]] node::FileDescriptor listen_on(const SystemAddress& address);
/// Listens at all addresses of the endpoint that this host has. One socket serves all interfaces,
/// and with port 0 there is only one. Throws BackendError if no address can be used, or another
/// socket has one of them.
[[nodiscard]] std::vector<node::FileDescriptor> listen_at(const Endpoint& endpoint);
/// Listens at the first free port of the range instead if the endpoint has port 0.
[[nodiscard]] std::vector<node::FileDescriptor> listen_at(const Endpoint& endpoint,
                                                          const PortRange& range);
/// The socket's own address; its family is AF_UNSPEC if the socket has none.
[[nodiscard]] SocketAddress address_of(int socket);

/// A connection that has begun. `socket` is invalid if no socket could be opened.
struct Connecting {
  node::FileDescriptor socket{};
  int error = 0;  // 0: connected; EINPROGRESS: not connected yet; otherwise the error
};
[[nodiscard]] Connecting begin_to_connect(const SystemAddress& address);
/// Waits for a connection in progress. Returns 0 once it is connected, or the error; none after
/// `timeout`.
[[nodiscard]] std::optional<int> end_of_connecting(int socket, std::chrono::nanoseconds timeout);

/// Connects to the endpoint. Tries all its addresses repeatedly until the deadline, since the
/// server may not listen yet, and its name may not be known yet. Calls `while_waiting` between
/// rounds. Throws BackendError.
[[nodiscard]] node::FileDescriptor connect_to(const Endpoint& endpoint, PatientDeadline& deadline,
                                              const std::function<void()>& while_waiting = {});
[[nodiscard]] inline node::FileDescriptor connect_to(
    const Endpoint& endpoint, std::chrono::nanoseconds timeout,
    const std::function<void()>& while_waiting = {}) {
  PatientDeadline deadline(timeout);
  return connect_to(endpoint, deadline, while_waiting);
}

/// Accepts a waiting connection. Returns an invalid descriptor and sets errno if there is none.
[[nodiscard]] node::FileDescriptor accept_connection(int listener);
/// The address of the other side of a connection; its length is 0 if that is not known.
[[nodiscard]] SystemAddress peer_address(int socket);
/// The same for messages.
[[nodiscard]] std::string peer_name(int socket);

/// Disables Nagle's algorithm, so that small messages leave at once.
void disable_delay(int socket);
/// Makes the kernel send probes on an idle connection, and end it after about `silence` without an
/// answer: the idle time and three intervals.
void keep_alive(int socket, std::chrono::nanoseconds silence);
/// Does both, and also lets the kernel end a connection whose data is not acknowledged for that
/// time.
void tune(int socket, std::chrono::nanoseconds silence);

}  // namespace kolo::internal::transport
