// SPDX-License-Identifier: Apache-2.0
// IP addresses with ports: those of this host, and which of them are to be used.
#pragma once

#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace kolo::internal::transport {

/// As the operating system wants it.
struct SystemAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;

  [[nodiscard]] const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

/// IPv4 or IPv6. Plain bytes, so that ranks can exchange theirs.
struct SocketAddress {
  std::uint16_t family = AF_UNSPEC;
  std::uint16_t port = 0;  // in the host's byte order
  std::array<std::uint8_t, 16> bytes{};

  /// Of another family: AF_UNSPEC.
  [[nodiscard]] static SocketAddress from(const sockaddr* address);
  [[nodiscard]] SystemAddress to_system() const;
  [[nodiscard]] bool is_loopback() const;
  /// Of IPv6, one that means another host in every network.
  [[nodiscard]] bool is_link_local() const;
  [[nodiscard]] std::size_t size() const { return family == AF_INET ? 4 : 16; }

  friend bool operator==(const SocketAddress&, const SocketAddress&) = default;
};

/// Like 10.1.0.7:4711 or [fd00::7]:4711; without a port if that is 0.
[[nodiscard]] std::string to_string(const SocketAddress& address);

/// An address of a network interface that is up. An interface with several comes several times.
struct Interface {
  std::string name;
  SocketAddress address;
};

/// IPv4 first; addresses of IPv6 that mean something only with their interface are left out. Throws
/// BackendError.
[[nodiscard]] std::vector<Interface> list_interfaces();

/// Those that `wanted` names, in its order: interfaces and networks such as eth0,10.1.0.0/16. All
/// but loopback if it is empty. Throws InvalidArgument, which lists the interfaces, if none is
/// among them, or if it cannot be parsed.
[[nodiscard]] std::vector<SocketAddress> choose_addresses(const std::vector<Interface>& interfaces,
                                                          std::string_view wanted);

}  // namespace kolo::internal::transport
