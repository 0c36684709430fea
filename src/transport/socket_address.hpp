// SPDX-License-Identifier: Apache-2.0
// IP addresses with ports, and the choice among the addresses of this host.
#pragma once

#include <sys/socket.h>

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace kolo::internal::transport {

/// An address in the form that system calls take.
struct SystemAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;

  [[nodiscard]] const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

/// An IPv4 or IPv6 address with a port. Plain bytes, so that ranks can send it to each other.
struct SocketAddress {
  std::uint16_t family = AF_UNSPEC;
  std::uint16_t port = 0;  // in the host's byte order
  std::array<std::uint8_t, 16> bytes{};

  /// Parses a numeric address without a port. The family of the result is AF_UNSPEC if the text is
  /// none, such as a host name, which is not looked up.
  [[nodiscard]] static SocketAddress parse(const std::string& text);
  /// The family of the result is AF_UNSPEC if `address` is neither IPv4 nor IPv6.
  [[nodiscard]] static SocketAddress from(const sockaddr* address);
  [[nodiscard]] SystemAddress to_system() const;
  [[nodiscard]] bool is_loopback() const;
  /// True for link-local IPv6 addresses, which are meaningful only together with an interface.
  [[nodiscard]] bool is_link_local() const;
  [[nodiscard]] std::size_t size() const { return family == AF_INET ? 4 : 16; }

  friend auto operator<=>(const SocketAddress&, const SocketAddress&) = default;
};

/// Formats an address as 10.1.0.7:4711 or [fd00::7]:4711, without the port if it is 0.
[[nodiscard]] std::string to_string(const SocketAddress& address);

/// An address of a network interface that is up. An interface with several addresses is listed
/// several times.
struct Interface {
  std::string name;
  SocketAddress address;
};

/// The addresses of this host, IPv4 first, without link-local IPv6 addresses. Throws BackendError.
[[nodiscard]] std::vector<Interface> list_interfaces();

/// The addresses that `wanted` selects, in its order. `wanted` lists interfaces and networks, such
/// as eth0,10.1.0.0/16; if it is empty, all addresses but loopback are chosen. Throws
/// InvalidArgument if no address matches, with a list of the interfaces, or if a network cannot be
/// parsed.
[[nodiscard]] std::vector<SocketAddress> choose_addresses(const std::vector<Interface>& interfaces,
                                                          std::string_view wanted);

}  // namespace kolo::internal::transport
