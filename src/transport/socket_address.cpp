#include "transport/socket_address.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>

#include <cstring>

namespace kolo::transport {

SocketAddress SocketAddress::from(const sockaddr* address) {
  SocketAddress result;
  if (address == nullptr) return result;
  if (address->sa_family == AF_INET) {
    const auto& v4 = *reinterpret_cast<const sockaddr_in*>(address);
    result.family = AF_INET;
    result.port = ntohs(v4.sin_port);
    std::memcpy(result.bytes.data(), &v4.sin_addr, sizeof v4.sin_addr);
  } else if (address->sa_family == AF_INET6) {
    const auto& v6 = *reinterpret_cast<const sockaddr_in6*>(address);
    result.family = AF_INET6;
    result.port = ntohs(v6.sin6_port);
    std::memcpy(result.bytes.data(), &v6.sin6_addr, sizeof v6.sin6_addr);
  }
  return result;
}

SystemAddress SocketAddress::to_system() const {
  SystemAddress result;
  if (family == AF_INET) {
    sockaddr_in v4{};
    v4.sin_family = AF_INET;
    v4.sin_port = htons(port);
    std::memcpy(&v4.sin_addr, bytes.data(), sizeof v4.sin_addr);
    std::memcpy(&result.storage, &v4, sizeof v4);
    result.length = sizeof v4;
  } else {
    sockaddr_in6 v6{};
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(port);
    std::memcpy(&v6.sin6_addr, bytes.data(), sizeof v6.sin6_addr);
    std::memcpy(&result.storage, &v6, sizeof v6);
    result.length = sizeof v6;
  }
  return result;
}

bool SocketAddress::is_loopback() const {
  if (family == AF_INET) return bytes[0] == 127;
  std::array<std::uint8_t, 16> loopback{};
  loopback.back() = 1;
  return family == AF_INET6 && bytes == loopback;
}

bool SocketAddress::is_link_local() const {
  return family == AF_INET6 && bytes[0] == 0xfe && (bytes[1] & 0xc0) == 0x80;
}

std::string to_string(const SocketAddress& address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (::inet_ntop(address.family, address.bytes.data(), text.data(), text.size()) == nullptr)
    return "no address";
  if (address.port == 0) return text.data();
  if (address.family == AF_INET6) return fmt::format("[{}]:{}", text.data(), address.port);
  return fmt::format("{}:{}", text.data(), address.port);
}

}  // namespace kolo::transport
