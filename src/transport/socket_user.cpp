// SPDX-License-Identifier: Apache-2.0
#include "transport/socket_user.hpp"

#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstring>

namespace kolo::internal::transport {
namespace {

struct Request {
  nlmsghdr header;
  inet_diag_req_v2 body;
};

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

/// A request for the socket at the other end; its family is 0 if there can be none.
Request request_for_peer_of(int socket) {
  Request request{};
  request.header.nlmsg_len = sizeof request;
  request.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
  request.header.nlmsg_flags = NLM_F_REQUEST;
  request.body.sdiag_protocol = IPPROTO_TCP;
  request.body.idiag_states = ~0U;
  request.body.id.idiag_cookie[0] = request.body.id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
  sockaddr_storage own{};
  sockaddr_storage peer{};
  socklen_t own_length = sizeof own;
  socklen_t peer_length = sizeof peer;
  inet_diag_sockid& id = request.body.id;
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&own), &own_length) == 0 &&
      ::getpeername(socket, reinterpret_cast<sockaddr*>(&peer), &peer_length) == 0 &&
      write_end(peer, id.idiag_src, id.idiag_sport) && write_end(own, id.idiag_dst, id.idiag_dport))
    request.body.sdiag_family = static_cast<__u8>(own.ss_family);
  return request;
}

}  // namespace

SocketUsers::SocketUsers() { open(); }

void SocketUsers::open() {
  kernel_ = node::FileDescriptor(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
}

std::optional<uid_t> SocketUsers::at_other_end_of(int socket) {
  Request request = request_for_peer_of(socket);
  if (request.body.sdiag_family == 0) return std::nullopt;
  if (!kernel_.valid()) open();
  request.header.nlmsg_seq = ++requests_;
  if (::send(kernel_.get(), &request, sizeof request, 0) < 0) return std::nullopt;
  // The kernel has answered before `send` returns. Earlier answers may be left.
  nlmsghdr header{};
  inet_diag_msg found{};
  do {
    alignas(nlmsghdr) std::array<char, 4096> answer{};
    const ssize_t bytes = ::recv(kernel_.get(), answer.data(), answer.size(), MSG_DONTWAIT);
    if (bytes < static_cast<ssize_t>(NLMSG_HDRLEN + sizeof found)) return std::nullopt;
    std::memcpy(&header, answer.data(), sizeof header);
    std::memcpy(&found, answer.data() + NLMSG_HDRLEN, sizeof found);
  } while (header.nlmsg_seq != requests_);
  // If no connection matches, the kernel answers with a socket that listens at the port.
  if (header.nlmsg_type != SOCK_DIAG_BY_FAMILY || found.idiag_state == TCP_LISTEN ||
      found.idiag_inode == 0)
    return std::nullopt;
  return found.idiag_uid;
}

bool SocketUsers::is_foreign(int socket) {
  const std::optional<uid_t> user = at_other_end_of(socket);
  return user && *user != ::geteuid();
}

}  // namespace kolo::internal::transport
