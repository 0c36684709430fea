// SPDX-License-Identifier: Apache-2.0
#include "transport/socket_address.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <system_error>

#include "kolo/error.hpp"
#include "node/error_codes.hpp"

namespace kolo::internal::transport {

namespace {

// Both address families store the port at the same offset.
constexpr std::size_t port_offset = offsetof(sockaddr_in, sin_port);
static_assert(port_offset == offsetof(sockaddr_in6, sin6_port));

std::size_t address_offset(int family) {
  return family == AF_INET ? offsetof(sockaddr_in, sin_addr) : offsetof(sockaddr_in6, sin6_addr);
}

struct Network {
  SocketAddress address;
  std::size_t bits;

  [[nodiscard]] bool contains(const SocketAddress& other) const {
    if (other.family != address.family) return false;
    for (std::size_t bit = 0; bit < bits; ++bit) {
      const auto mask = static_cast<std::uint8_t>(0x80U >> (bit % 8));
      if (((address.bytes[bit / 8] ^ other.bytes[bit / 8]) & mask) != 0) return false;
    }
    return true;
  }
};

Network parse_network(const std::string& text) {
  const std::size_t slash = text.find('/');
  const std::string address = text.substr(0, slash);
  Network network{};
  network.address.family = address.find(':') == std::string::npos ? AF_INET : AF_INET6;
  const char* begin = text.data() + slash + 1;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(begin, end, network.bits);
  if (::inet_pton(network.address.family, address.c_str(), network.address.bytes.data()) != 1 ||
      error != std::errc() || rest != end || network.bits > 8 * network.address.size())
    throw InvalidArgument(fmt::format("{} is no network such as 10.1.0.0/16", text));
  return network;
}

std::string describe(const std::vector<Interface>& interfaces) {
  std::string text;
  for (const Interface& interface : interfaces)
    text += fmt::format("{}{} ({})", text.empty() ? "" : ", ", interface.name,
                        to_string(interface.address));
  return text.empty() ? "none" : text;
}

}  // namespace

SocketAddress SocketAddress::parse(const std::string& text) {
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST;
  addrinfo* found = nullptr;
  if (::getaddrinfo(text.c_str(), nullptr, &hints, &found) != 0) return {};
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> all(found, &::freeaddrinfo);
  return from(found->ai_addr);
}

SocketAddress SocketAddress::from(const sockaddr* address) {
  if (address == nullptr || (address->sa_family != AF_INET && address->sa_family != AF_INET6))
    return {};
  SocketAddress result{.family = address->sa_family};
  const auto* const from = reinterpret_cast<const std::byte*>(address);
  std::memcpy(&result.port, from + port_offset, sizeof result.port);
  result.port = ntohs(result.port);
  std::memcpy(result.bytes.data(), from + address_offset(result.family), result.size());
  return result;
}

SystemAddress SocketAddress::to_system() const {
  SystemAddress result;
  result.length = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  result.storage.ss_family = family;
  auto* const to = reinterpret_cast<std::byte*>(&result.storage);
  const in_port_t network_port = htons(port);
  std::memcpy(to + port_offset, &network_port, sizeof network_port);
  std::memcpy(to + address_offset(family), bytes.data(), size());
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

std::vector<Interface> list_interfaces() {
  ifaddrs* first = nullptr;
  if (::getifaddrs(&first) != 0) throw BackendError("getifaddrs: " + error_text(errno));
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> all(first, &::freeifaddrs);
  std::vector<Interface> interfaces;
  for (const ifaddrs* one = first; one != nullptr; one = one->ifa_next) {
    const SocketAddress address = SocketAddress::from(one->ifa_addr);
    if ((one->ifa_flags & IFF_UP) == 0 || address.family == AF_UNSPEC || address.is_link_local())
      continue;
    interfaces.push_back({one->ifa_name, address});
  }
  const auto is_ipv4 = [](const Interface& interface) {
    return interface.address.family == AF_INET;
  };
  std::stable_partition(interfaces.begin(), interfaces.end(), is_ipv4);
  return interfaces;
}

std::vector<SocketAddress> choose_addresses(const std::vector<Interface>& interfaces,
                                            std::string_view wanted) {
  std::vector<SocketAddress> chosen;
  const auto add_if = [&](const auto& suits) {
    for (const Interface& interface : interfaces)
      if (suits(interface) && std::ranges::find(chosen, interface.address) == chosen.end())
        chosen.push_back(interface.address);
  };
  if (wanted.empty()) {
    add_if([](const Interface& interface) { return !interface.address.is_loopback(); });
    return chosen;
  }
  for (std::size_t begin = 0; begin <= wanted.size();) {
    const std::size_t end = std::min(wanted.find(',', begin), wanted.size());
    const std::string item(wanted.substr(begin, end - begin));
    begin = end + 1;
    if (item.find('/') == std::string::npos) {
      add_if([&](const Interface& interface) { return interface.name == item; });
    } else {
      const Network network = parse_network(item);
      add_if([&](const Interface& interface) { return network.contains(interface.address); });
    }
  }
  if (chosen.empty())
    throw InvalidArgument("names no interface that is up and has an address; there are " +
                          describe(interfaces));
  return chosen;
}

}  // namespace kolo::internal::transport
