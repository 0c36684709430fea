// SPDX-License-Identifier: Apache-2.0
#include "transport/socket_user.hpp"

#include <ifaddrs.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <net/if.h>
#include <netinet/tcp.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

namespace kolo::internal::transport {

struct SocketRequest {
  nlmsghdr header;
  inet_diag_req_v2 body;
};

namespace {

// Addresses come and go. To list them for each of many strangers would take long.
constexpr std::chrono::seconds list_again{1};

/// Writes an address and a port as a request has them. False for other address families.
bool write_end(const sockaddr_storage& address, __be32* words, __be16& port) {
  if (address.ss_family == AF_INET) {
    const auto& end = reinterpret_cast<const sockaddr_in&>(address);
    std::memcpy(words, &end.sin_addr, sizeof end.sin_addr);
    port = end.sin_port;
    return true;
  }
  if (address.ss_family != AF_INET6) return false;
  const auto& end = reinterpret_cast<const sockaddr_in6&>(address);
  std::memcpy(words, &end.sin6_addr, sizeof end.sin6_addr);
  port = end.sin6_port;
  return true;
}

/// An IPv4 address as ::ffff:a.b.c.d; empty for other address families.
std::optional<in6_addr> as_ipv6(const sockaddr& address) {
  in6_addr words{};
  if (address.sa_family == AF_INET) {
    words.s6_addr[10] = words.s6_addr[11] = 0xff;
    std::memcpy(&words.s6_addr[12], &reinterpret_cast<const sockaddr_in&>(address).sin_addr, 4);
    return words;
  }
  if (address.sa_family != AF_INET6) return std::nullopt;
  return reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
}

bool is_loopback(const in6_addr& address) {
  return IN6_IS_ADDR_LOOPBACK(&address) ||
         (IN6_IS_ADDR_V4MAPPED(&address) && address.s6_addr[12] == 127);
}

/// A request for the socket at the other end, whose address is `peer`. Its family is 0 if the
/// connection is closed.
SocketRequest request_for_peer_of(int socket, sockaddr_storage& peer) {
  SocketRequest request{};
  request.header.nlmsg_len = sizeof request;
  request.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
  request.header.nlmsg_flags = NLM_F_REQUEST;
  request.body.sdiag_protocol = IPPROTO_TCP;
  request.body.idiag_states = ~0U;
  request.body.id.idiag_cookie[0] = request.body.id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
  sockaddr_storage own{};
  socklen_t own_length = sizeof own;
  socklen_t peer_length = sizeof peer;
  inet_diag_sockid& id = request.body.id;
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&own), &own_length) == 0 &&
      ::getpeername(socket, reinterpret_cast<sockaddr*>(&peer), &peer_length) == 0 &&
      write_end(peer, id.idiag_src, id.idiag_sport) && write_end(own, id.idiag_dst, id.idiag_dport))
    request.body.sdiag_family = static_cast<__u8>(own.ss_family);
  return request;
}

/// The network devices of this namespace; none if no descriptor is left to ask.
std::vector<unsigned> devices() {
  std::vector<unsigned> indices;
  struct if_nameindex* const names = ::if_nameindex();
  for (const struct if_nameindex* name = names; name != nullptr && name->if_index != 0; ++name)
    indices.push_back(name->if_index);
  if (names != nullptr) ::if_freenameindex(names);
  return indices;
}

}  // namespace

SocketUsers::SocketUsers() {
  open();
  list_own_addresses();
}

void SocketUsers::open() {
  kernel_ = node::FileDescriptor(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
}

/// Keeps the earlier list if no descriptor is left.
void SocketUsers::list_own_addresses() {
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) return;
  own_addresses_.clear();
  listed_at_ = std::chrono::steady_clock::now();
  for (const ifaddrs* one = all; one != nullptr; one = one->ifa_next)
    if (one->ifa_addr != nullptr)
      if (const auto address = as_ipv6(*one->ifa_addr)) own_addresses_.push_back(*address);
  ::freeifaddrs(all);
}

bool SocketUsers::is_own(const sockaddr_storage& address) {
  if (std::chrono::steady_clock::now() - listed_at_ > list_again) list_own_addresses();
  const auto wanted = as_ipv6(reinterpret_cast<const sockaddr&>(address));
  return wanted &&
         (is_loopback(*wanted) || std::ranges::any_of(own_addresses_, [&](const in6_addr& own) {
            return std::memcmp(&own, &*wanted, sizeof own) == 0;
          }));
}

std::optional<SocketUsers::Found> SocketUsers::ask(SocketRequest& request) {
  if (!kernel_.valid()) open();
  request.header.nlmsg_seq = ++requests_;
  if (::send(kernel_.get(), &request, sizeof request, 0) < 0) return std::nullopt;
  // The kernel has answered before `send` returns. Earlier answers may be left.
  nlmsghdr header{};
  alignas(nlmsghdr) std::array<char, 4096> answer{};
  ssize_t bytes = 0;
  do {
    bytes = ::recv(kernel_.get(), answer.data(), answer.size(), MSG_DONTWAIT);
    if (bytes < static_cast<ssize_t>(sizeof header)) return std::nullopt;
    std::memcpy(&header, answer.data(), sizeof header);
  } while (header.nlmsg_seq != requests_);
  const auto read = [&](auto& message) {
    if (bytes < static_cast<ssize_t>(NLMSG_HDRLEN + sizeof message)) return false;
    std::memcpy(&message, answer.data() + NLMSG_HDRLEN, sizeof message);
    return true;
  };
  nlmsgerr error{};
  inet_diag_msg found{};
  if (header.nlmsg_type == NLMSG_ERROR && read(error) && error.error == -ENOENT) return Found{};
  if (header.nlmsg_type != SOCK_DIAG_BY_FAMILY || !read(found)) return std::nullopt;
  // If no connection matches, the kernel answers with a socket that listens at the port.
  const bool is_held = found.idiag_state != TCP_LISTEN && found.idiag_inode != 0;
  return Found{is_held, found.idiag_uid};
}

/// False if the kernel does not even find this process's end of the connection: its answer is the
/// same if it cannot tell.
bool SocketUsers::finds_own_end(SocketRequest request) {
  inet_diag_sockid& id = request.body.id;
  id.idiag_if = 0;
  std::swap(id.idiag_src, id.idiag_dst);
  std::swap(id.idiag_sport, id.idiag_dport);
  const std::optional<Found> found = ask(request);
  return found && found->is_held;
}

OtherEnd SocketUsers::at_other_end_of(int socket) {
  sockaddr_storage peer{};
  SocketRequest request = request_for_peer_of(socket, peer);
  if (request.body.sdiag_family == 0) return OtherEnd::hidden;
  std::optional<Found> found = ask(request);
  if (found && !found->is_held) {
    if (!is_own(peer)) return OtherEnd::elsewhere;
    // A socket that is bound to a device is found only with that device, and any user may bind one.
    for (const unsigned device : devices()) {
      request.body.id.idiag_if = device;
      found = ask(request);
      if (!found || found->is_held) break;
    }
  }
  if (!found) return OtherEnd::unknown;
  if (!found->is_held) return finds_own_end(request) ? OtherEnd::hidden : OtherEnd::unknown;
  return found->user == ::geteuid() ? OtherEnd::same_user : OtherEnd::other_user;
}

bool is_foreign(OtherEnd end, bool has_secret) {
  return end == OtherEnd::other_user || (end == OtherEnd::hidden && !has_secret);
}

}  // namespace kolo::internal::transport
