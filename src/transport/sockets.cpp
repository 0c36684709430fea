// SPDX-License-Identifier: Apache-2.0
#include "transport/sockets.hpp"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <fstream>
#include <memory>
#include <system_error>
#include <thread>

#include "kolo/error.hpp"

namespace kolo::internal::rendezvous {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds between_attempts{50};

std::string text_of(int error) { return std::generic_category().message(error); }

struct FreeAddresses {
  void operator()(addrinfo* list) const { ::freeaddrinfo(list); }
};
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;

Addresses resolve(const Endpoint& endpoint, bool passive) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | (passive ? AI_PASSIVE : 0);
  addrinfo* found = nullptr;
  const std::string port = std::to_string(endpoint.port);
  const int code = ::getaddrinfo(endpoint.host.empty() ? nullptr : endpoint.host.c_str(),
                                 port.c_str(), &hints, &found);
  if (code != 0)
    throw BackendError(
        fmt::format("cannot resolve the address of {}: {}", endpoint.host, ::gai_strerror(code)));
  return Addresses(found);
}

bool is_loopback(const sockaddr& address) {
  if (address.sa_family == AF_INET6)
    return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6&>(address).sin6_addr);
  constexpr std::uint32_t network = 127;
  return ntohl(reinterpret_cast<const sockaddr_in&>(address).sin_addr.s_addr) >> 24 == network;
}

node::FileDescriptor open_socket(const addrinfo& address) {
  return node::FileDescriptor(
      ::socket(address.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

/// 0, or why not.
int try_to_connect(const addrinfo& address, int socket, milliseconds most) {
  if (::connect(socket, address.ai_addr, address.ai_addrlen) == 0) return 0;
  if (errno != EINPROGRESS) return errno;
  pollfd waits{.fd = socket, .events = POLLOUT, .revents = 0};
  if (::poll(&waits, 1, static_cast<int>(most.count())) <= 0) return ETIMEDOUT;
  int error = 0;
  socklen_t size = sizeof error;
  ::getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &size);
  return error;
}

template <typename Value>
void set_option(int socket, int level, int option, Value value) {
  ::setsockopt(socket, level, option, &value, sizeof value);
}

}  // namespace

Endpoint parse_endpoint(std::string_view text) {
  const std::size_t colon = text.rfind(':');
  const auto fail = [&] {
    throw InvalidArgument(fmt::format("'{}' is not an address: expected HOST:PORT", text));
  };
  if (colon == std::string_view::npos || colon == 0) fail();
  std::string_view host = text.substr(0, colon);
  const std::string_view port = text.substr(colon + 1);
  if (host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  if (host.empty()) fail();
  Endpoint endpoint{.host = std::string(host)};
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), endpoint.port);
  if (error != std::errc() || end != port.data() + port.size()) fail();
  return endpoint;
}

std::string to_string(const Endpoint& endpoint) {
  const bool has_colons = endpoint.host.find(':') != std::string::npos;
  return has_colons ? fmt::format("[{}]:{}", endpoint.host, endpoint.port)
                    : fmt::format("{}:{}", endpoint.host, endpoint.port);
}

bool is_loopback(const std::string& host) {
  try {
    const Addresses addresses = resolve({host, 0}, false);
    for (const addrinfo* each = addresses.get(); each != nullptr; each = each->ai_next)
      if (!is_loopback(*each->ai_addr)) return false;
    return true;
  } catch (const BackendError&) {
    return false;
  }
}

node::FileDescriptor listen_at(const Endpoint& endpoint) {
  const Addresses addresses = resolve(endpoint, true);
  int error = 0;
  // A socket of IPv6 for all interfaces takes connections of IPv4 too.
  for (const bool six : {true, false})
    for (const addrinfo* each = addresses.get(); each != nullptr; each = each->ai_next) {
      if ((each->ai_family == AF_INET6) != six) continue;
      node::FileDescriptor socket = open_socket(*each);
      if (socket.valid()) {
        set_option(socket.get(), SOL_SOCKET, SO_REUSEADDR, 1);
        if (six) set_option(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, 0);
        if (::bind(socket.get(), each->ai_addr, each->ai_addrlen) == 0 &&
            ::listen(socket.get(), SOMAXCONN) == 0)
          return socket;
      }
      error = errno;
    }
  throw BackendError(fmt::format("cannot listen on {}: {}", to_string(endpoint), text_of(error)));
}

std::uint16_t port_of(int socket) {
  sockaddr_storage at{};
  socklen_t size = sizeof at;
  ::getsockname(socket, reinterpret_cast<sockaddr*>(&at), &size);
  return ntohs(at.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(at).sin6_port
                                        : reinterpret_cast<const sockaddr_in&>(at).sin_port);
}

node::FileDescriptor connect_to(const Endpoint& endpoint, std::chrono::nanoseconds timeout,
                                const std::function<void()>& while_waiting) {
  const auto until = steady_clock::now() + timeout;
  const auto left = [&] { return std::chrono::ceil<milliseconds>(until - steady_clock::now()); };
  const Addresses addresses = resolve(endpoint, false);
  int error = 0;
  do {
    for (const addrinfo* each = addresses.get(); each != nullptr; each = each->ai_next) {
      node::FileDescriptor socket = open_socket(*each);
      // One address that does not answer leaves time for the others.
      const milliseconds share = each->ai_next == nullptr ? left() : left() / 2;
      error = socket.valid() ? try_to_connect(*each, socket.get(), std::max(share, milliseconds(1)))
                             : errno;
      if (error == 0) return socket;
    }
    if (while_waiting) while_waiting();
    std::this_thread::sleep_for(std::min(between_attempts, std::max(left(), milliseconds(0))));
  } while (left() > milliseconds(0));
  throw BackendError(fmt::format("no connection to the rendezvous server at {} within {} s: {}",
                                 to_string(endpoint),
                                 std::chrono::duration<double>(timeout).count(), text_of(error)));
}

std::string peer_name(int socket) {
  sockaddr_storage from{};
  socklen_t size = sizeof from;
  std::array<char, NI_MAXHOST> host{};
  std::array<char, NI_MAXSERV> port{};
  if (::getpeername(socket, reinterpret_cast<sockaddr*>(&from), &size) != 0 ||
      ::getnameinfo(reinterpret_cast<const sockaddr*>(&from), size, host.data(), host.size(),
                    port.data(), port.size(), NI_NUMERICHOST | NI_NUMERICSERV) != 0)
    return "an unknown address";
  return to_string({host.data(), static_cast<std::uint16_t>(std::atoi(port.data()))});
}

void tune(int socket, std::chrono::nanoseconds silence) {
  const int on = 1;
  set_option(socket, IPPROTO_TCP, TCP_NODELAY, on);
  const auto seconds =
      std::max<std::int64_t>(1, std::chrono::ceil<std::chrono::seconds>(silence).count());
  set_option(socket, SOL_SOCKET, SO_KEEPALIVE, on);
  set_option(socket, IPPROTO_TCP, TCP_KEEPIDLE,
             static_cast<int>(std::max<std::int64_t>(1, seconds / 4)));
  set_option(socket, IPPROTO_TCP, TCP_KEEPINTVL,
             static_cast<int>(std::max<std::int64_t>(1, seconds / 4)));
  set_option(socket, IPPROTO_TCP, TCP_KEEPCNT, 3);
  set_option(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<unsigned int>(seconds * 1000));
}

std::string host_name() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

std::string machine_name() {
  std::string boot;
  struct ::stat network {};
  struct ::stat processes {};
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  if (!std::getline(file, boot) || ::stat("/proc/self/ns/net", &network) != 0 ||
      ::stat("/proc/self/ns/pid", &processes) != 0)
    return fmt::format("{} {}", host_name(), ::getpid());
  return fmt::format("{} {} {}", boot, network.st_ino, processes.st_ino);
}

}  // namespace kolo::internal::rendezvous
