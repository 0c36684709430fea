#include "transport/socket_address.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstring>
#include <memory>
#include <optional>

#include "kolo/error.hpp"
#include "node/error_codes.hpp"

namespace kolo::internal::transport {

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

namespace {

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

std::vector<Interface> list_interfaces() {
  ifaddrs* first = nullptr;
  if (::getifaddrs(&first) != 0) node::throw_system_error("getifaddrs");
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
