// SPDX-License-Identifier: Apache-2.0
#include "transport/sockets.hpp"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <system_error>
#include <thread>
#include <vector>

#include "kolo/error.hpp"
#include "node/error_codes.hpp"

namespace kolo::internal::transport {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::steady_clock;

constexpr milliseconds between_attempts{50};

/// Returns `SystemAddress` because a `SocketAddress` would lose the scope of a link-local IPv6
/// address.
std::vector<SystemAddress> resolve(const Endpoint& endpoint, bool passive) {
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
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> list(found, &::freeaddrinfo);
  std::vector<SystemAddress> addresses;
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
    SystemAddress& address = addresses.emplace_back();
    address.length = each->ai_addrlen;
    std::memcpy(&address.storage, each->ai_addr, each->ai_addrlen);
  }
  return addresses;
}

node::FileDescriptor open_socket(const SystemAddress& address) {
  return node::FileDescriptor(
      ::socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
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
    return std::ranges::all_of(resolve({host, 0}, false), [](const SystemAddress& address) {
      return SocketAddress::from(address.get()).is_loopback();
    });
  } catch (const BackendError&) {
    return false;
  }
}

node::FileDescriptor listen_on(const SystemAddress& address) {
  node::FileDescriptor socket = open_socket(address);
  if (!socket.valid()) return socket;
  set_option(socket.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  // An IPv6 socket on all interfaces also accepts IPv4 connections.
  if (address.storage.ss_family == AF_INET6) set_option(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, 0);
  if (::bind(socket.get(), address.get(), address.length) == 0 &&
      ::listen(socket.get(), SOMAXCONN) == 0)
    return socket;
  const int error = errno;
  socket = {};
  errno = error;
  return socket;
}

std::vector<node::FileDescriptor> listen_at(const Endpoint& endpoint) {
  std::vector<SystemAddress> addresses = resolve(endpoint, true);
  // IPv6 first: such a socket serves both families if it listens on all interfaces.
  std::stable_partition(addresses.begin(), addresses.end(), [](const SystemAddress& address) {
    return address.storage.ss_family == AF_INET6;
  });
  const bool needs_one = endpoint.host.empty() || endpoint.port == 0;
  std::vector<node::FileDescriptor> listeners;
  int error = 0;
  for (const SystemAddress& address : addresses) {
    node::FileDescriptor socket = listen_on(address);
    if (socket.valid()) {
      listeners.push_back(std::move(socket));
      if (needs_one) break;
      continue;
    }
    const bool is_absent = errno == EADDRNOTAVAIL || errno == EAFNOSUPPORT;
    if (error == 0 || !is_absent) error = errno;
    if (is_absent || needs_one) continue;
    listeners.clear();
    break;
  }
  if (listeners.empty())
    throw BackendError(
        fmt::format("cannot listen on {}: {}", to_string(endpoint), error_text(error)));
  return listeners;
}

std::vector<node::FileDescriptor> listen_at(const Endpoint& endpoint, const PortRange& range) {
  if (endpoint.port != 0 || !range.is_set()) return listen_at(endpoint);
  for (int port = range.first;; ++port) try {
      return listen_at({endpoint.host, static_cast<std::uint16_t>(port)});
    } catch (const BackendError& error) {
      if (port == range.last)
        throw BackendError(fmt::format("no port of {}:{} is free to listen at: {}", range.first,
                                       range.last, error.what()));
    }
}

SocketAddress address_of(int socket) {
  SystemAddress address{.length = sizeof(sockaddr_storage)};
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&address.storage), &address.length) != 0)
    return {};
  return SocketAddress::from(address.get());
}

Connecting begin_to_connect(const SystemAddress& address) {
  Connecting result{.socket = open_socket(address)};
  if (!result.socket.valid() || ::connect(result.socket.get(), address.get(), address.length) != 0)
    result.error = errno;
  return result;
}

std::optional<int> end_of_connecting(int socket, nanoseconds timeout) {
  pollfd waits{.fd = socket, .events = POLLOUT, .revents = 0};
  const auto left = std::chrono::ceil<milliseconds>(timeout).count();
  if (::poll(&waits, 1, static_cast<int>(left)) <= 0) return std::nullopt;
  int error = 0;
  socklen_t size = sizeof error;
  ::getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &size);
  return error;
}

namespace {

/// As `end_of_connecting`, until the deadline has no more than `rest` left.
std::optional<int> end_in_turns(int socket, PatientDeadline& deadline, nanoseconds rest) {
  do {
    const nanoseconds turn =
        std::clamp<nanoseconds>(deadline.left() - rest, milliseconds(1), PatientDeadline::max_turn);
    if (const auto error = end_of_connecting(socket, turn)) return error;
  } while (deadline.left() > rest);
  return std::nullopt;
}

}  // namespace

node::FileDescriptor connect_to(const Endpoint& endpoint, PatientDeadline& deadline,
                                const std::function<void()>& while_waiting) {
  const nanoseconds timeout = deadline.left();
  std::string problem;
  const auto try_all = [&]() -> node::FileDescriptor {
    static_cast<void>(deadline.left());
    const std::vector<SystemAddress> addresses = resolve(endpoint, false);
    deadline.count_call();  // a name server may be slow
    for (const SystemAddress& address : addresses) {
      Connecting attempt = begin_to_connect(address);
      // An address that does not answer leaves half of the remaining time to those after it.
      const nanoseconds rest = deadline.left() / 2;
      int error = attempt.error;
      if (error == EINPROGRESS)
        error = end_in_turns(attempt.socket.get(), deadline,
                             &address == &addresses.back() ? nanoseconds(0) : rest)
                    .value_or(ETIMEDOUT);
      if (error == 0) return std::move(attempt.socket);
      problem = error_text(error);
    }
    return {};
  };
  do {
    try {
      if (node::FileDescriptor socket = try_all(); socket.valid()) return socket;
    } catch (const BackendError& unknown) {
      problem = unknown.what();
    }
    if (while_waiting) while_waiting();
    std::this_thread::sleep_for(std::min<nanoseconds>(between_attempts, deadline.left()));
  } while (!deadline.is_over());
  throw BackendError(fmt::format("no connection to the rendezvous server at {} within {} s: {}",
                                 to_string(endpoint),
                                 std::chrono::duration<double>(timeout).count(), problem));
}

node::FileDescriptor accept_connection(int listener) {
  return node::FileDescriptor(::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
}

SystemAddress peer_address(int socket) {
  SystemAddress peer{.length = sizeof(sockaddr_storage)};
  if (::getpeername(socket, reinterpret_cast<sockaddr*>(&peer.storage), &peer.length) != 0)
    peer.length = 0;
  return peer;
}

std::string peer_name(int socket) {
  const SystemAddress from = peer_address(socket);
  return from.length == 0 ? "an unknown address" : to_string(SocketAddress::from(from.get()));
}

void disable_delay(int socket) { set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1); }

void keep_alive(int socket, nanoseconds silence) {
  const auto seconds =
      std::max<std::int64_t>(1, std::chrono::ceil<std::chrono::seconds>(silence).count());
  const int quarter = static_cast<int>(std::max<std::int64_t>(1, seconds / 4));
  set_option(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(socket, IPPROTO_TCP, TCP_KEEPIDLE, quarter);
  set_option(socket, IPPROTO_TCP, TCP_KEEPINTVL, quarter);
  set_option(socket, IPPROTO_TCP, TCP_KEEPCNT, 3);
}

void tune(int socket, nanoseconds silence) {
  disable_delay(socket);
  keep_alive(socket, silence);
  const auto seconds =
      std::max<std::int64_t>(1, std::chrono::ceil<std::chrono::seconds>(silence).count());
  set_option(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<unsigned int>(seconds * 1000));
}

}  // namespace kolo::internal::transport
