#include "transport/interfaces.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <memory>
#include <optional>

#include "kolo/error.hpp"
#include "node/system_error.hpp"

namespace kolo::transport {
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

}  // namespace kolo::transport
