// SPDX-License-Identifier: Apache-2.0
// TCP connections by the names of hosts.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "node/file_descriptor.hpp"

namespace kolo::internal::rendezvous {

struct Endpoint {
  std::string host{};  // a name or an address; empty: all interfaces
  std::uint16_t port = 0;
};

/// From "host:4711", "10.0.0.1:4711" or "[fd00::1]:4711". Throws InvalidArgument.
[[nodiscard]] Endpoint parse_endpoint(std::string_view text);
[[nodiscard]] std::string to_string(const Endpoint& endpoint);

/// True if the name is known, and all its addresses are loopback addresses.
[[nodiscard]] bool is_loopback(const std::string& host);

/// A socket that accepts connections and does not block. Port 0: the system chooses. Throws
/// BackendError.
[[nodiscard]] node::FileDescriptor listen_at(const Endpoint& endpoint);
[[nodiscard]] std::uint16_t port_of(int socket);

/// Tries all addresses of the host, again and again while nobody listens there, until the timeout.
/// The socket does not block. `while_waiting` is called before each new attempt. Throws
/// BackendError.
[[nodiscard]] node::FileDescriptor connect_to(const Endpoint& endpoint,
                                              std::chrono::nanoseconds timeout,
                                              const std::function<void()>& while_waiting = {});

/// The other side of a connection that was accepted, for people.
[[nodiscard]] std::string peer_name(int socket);

/// Small messages leave at once, and a host that has gone away is noticed after `silence`.
void tune(int socket, std::chrono::nanoseconds silence);

/// This host's name.
[[nodiscard]] std::string host_name();
/// Processes with the same one can share memory: the kernel, and the namespaces of network and
/// processes. Unique to this process where that cannot be seen.
[[nodiscard]] std::string machine_name();

}  // namespace kolo::internal::rendezvous
