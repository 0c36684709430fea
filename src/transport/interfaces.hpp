// Which addresses this host has, and which of them are to be used.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "transport/socket_address.hpp"

namespace kolo::transport {

/// An address of a network interface that is up. An interface with several comes several times.
struct Interface {
  std::string name;
  SocketAddress address;
};

/// IPv4 first; addresses of IPv6 that mean something only with their interface are left out. Throws
/// BackendError.
[[nodiscard]] std::vector<Interface> list_interfaces();

/// Those that `wanted` names, in its order: interfaces and networks such as eth0,10.1.0.0/16. All
/// but loopback if it is empty. Throws InvalidArgument, which says what there is, if none is among
/// them, or if it cannot be understood.
[[nodiscard]] std::vector<SocketAddress> choose_addresses(const std::vector<Interface>& interfaces,
                                                          std::string_view wanted);

}  // namespace kolo::transport
