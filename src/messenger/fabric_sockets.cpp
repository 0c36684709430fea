// SPDX-License-Identifier: Apache-2.0
#include "messenger/fabric_sockets.hpp"

#include <linux/filter.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <system_error>

#include "node/file_descriptor.hpp"

namespace kolo::internal::messenger {
namespace {

using transport::SocketAddress;

/// The addresses of a socket's two ends: its own and the other one.
using Ends = std::pair<SocketAddress, SocketAddress>;

SocketAddress address_in(const sockaddr_storage& storage) {
  return SocketAddress::from(reinterpret_cast<const sockaddr*>(&storage));
}

std::optional<SocketAddress> own_address(int socket) {
  sockaddr_storage own{};
  socklen_t length = sizeof own;
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&own), &length) != 0) return std::nullopt;
  return address_in(own);
}

std::optional<SocketAddress> other_address(int socket) {
  sockaddr_storage other{};
  socklen_t length = sizeof other;
  if (::getpeername(socket, reinterpret_cast<sockaddr*>(&other), &length) != 0) return std::nullopt;
  return address_in(other);
}

std::optional<Ends> ends_of(const fid_ep* endpoint) {
  if (endpoint == nullptr) return std::nullopt;
  auto* const object = const_cast<fid_ep*>(endpoint);  // libfabric does not change it
  sockaddr_storage own{};
  sockaddr_storage other{};
  std::size_t own_length = sizeof own;
  std::size_t other_length = sizeof other;
  if (::fi_getname(&object->fid, &own, &own_length) != 0 ||
      ::fi_getpeer(object, &other, &other_length) != 0)
    return std::nullopt;
  return Ends{address_in(own), address_in(other)};
}

bool is_tcp(int socket) {
  int protocol = 0;
  socklen_t length = sizeof protocol;
  return ::getsockopt(socket, SOL_SOCKET, SO_PROTOCOL, &protocol, &length) == 0 &&
         protocol == IPPROTO_TCP;
}

/// Calls `take` with each TCP socket of this process and its address.
template <typename Take>
void for_each_socket(const Take& take) {
  const auto visit = [&](int descriptor) {
    if (!is_tcp(descriptor)) return;
    if (const auto own = own_address(descriptor)) take(descriptor, *own);
  };
  std::error_code error;  // if /proc is hidden, forked children keep the sockets
  const std::filesystem::directory_iterator entries("/proc/self/fd", error);
  if (error == std::errc::too_many_files_open) {
    rlimit limit{};  // all numbers below it are in use
    ::getrlimit(RLIMIT_NOFILE, &limit);
    for (int descriptor = 0; descriptor < static_cast<int>(limit.rlim_cur); ++descriptor)
      visit(descriptor);
    return;
  }
  for (const auto& entry : entries) visit(std::atoi(entry.path().filename().c_str()));
}

bool listens(int socket) {
  int result = 0;
  socklen_t length = sizeof result;
  return ::getsockopt(socket, SOL_SOCKET, SO_ACCEPTCONN, &result, &length) == 0 && result != 0;
}

bool is_readable(int socket) {
  pollfd waiting{.fd = socket, .events = POLLIN, .revents = 0};
  return ::poll(&waiting, 1, 0) > 0;
}

}  // namespace

std::vector<int> find_sockets(const std::vector<const fid_ep*>& endpoints) {
  std::map<Ends, int> sockets;
  for_each_socket([&](int socket, const SocketAddress& own) {
    if (const auto other = other_address(socket)) sockets[{own, *other}] = socket;
  });
  std::vector<int> found;
  for (const fid_ep* endpoint : endpoints) {
    const std::optional<Ends> ends = ends_of(endpoint);
    const auto socket = ends ? sockets.find(*ends) : sockets.end();
    found.push_back(socket == sockets.end() ? -1 : socket->second);
  }
  return found;
}

void limit_blocking(const SocketAddress& listening) {
  constexpr timeval limit{.tv_sec = 0, .tv_usec = 10'000};
  for_each_socket([&](int socket, const SocketAddress& own) {
    if (own == listening && listens(socket))
      ::setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  });
}

Pass pass_of(const transport::Secret& secret) {
  return std::bit_cast<Pass>(transport::hash_with_secret(secret, "pass of data connections"));
}

/// A filter of the listening socket, which accepted sockets inherit. It sees each segment from the
/// TCP header on. A call is one segment.
void require_pass(const SocketAddress& listening, const Pass& pass) {
  std::array<std::uint32_t, 2> words{};  // in network order
  std::memcpy(words.data(), pass.data(), pass.size());
  std::array program{
      sock_filter BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 12),  // the length of the TCP header
      sock_filter BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 0xf0),
      sock_filter BPF_STMT(BPF_ALU | BPF_RSH | BPF_K, 2),
      sock_filter BPF_STMT(BPF_MISC | BPF_TAX, 0),
      sock_filter BPF_STMT(BPF_LD | BPF_W | BPF_LEN, 0),
      sock_filter BPF_STMT(BPF_ALU | BPF_SUB | BPF_X, 0),
      sock_filter BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 8, 0),  // no content
      sock_filter BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, sizeof(Pass), 0, 8),
      sock_filter BPF_STMT(BPF_LD | BPF_W | BPF_LEN, 0),
      sock_filter BPF_STMT(BPF_ALU | BPF_SUB | BPF_K, sizeof(Pass)),
      sock_filter BPF_STMT(BPF_MISC | BPF_TAX, 0),
      sock_filter BPF_STMT(BPF_LD | BPF_W | BPF_IND, 0),
      sock_filter BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ntohl(words[0]), 0, 3),
      sock_filter BPF_STMT(BPF_LD | BPF_W | BPF_IND, 4),
      sock_filter BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ntohl(words[1]), 0, 1),
      sock_filter BPF_STMT(BPF_RET | BPF_K, 0xffffffff),  // all of it
      sock_filter BPF_STMT(BPF_RET | BPF_K, 0),
  };
  const sock_fprog filter{.len = static_cast<unsigned short>(program.size()),
                          .filter = program.data()};
  for_each_socket([&](int socket, const SocketAddress& own) {
    if (own == listening && listens(socket))
      ::setsockopt(socket, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof filter);
  });
}

void FabricCallers::admit(const std::vector<const fid_ep*>& endpoints) {
  constexpr int ignored = 0;  // every option must have a value
  for (const int socket : find_sockets(endpoints))
    if (socket >= 0) ::setsockopt(socket, SOL_SOCKET, SO_DETACH_FILTER, &ignored, sizeof ignored);
}

void FabricCallers::look(const std::vector<const fid_ep*>& known) {
  std::set<SocketAddress> callers;  // the other sides of the endpoints
  for (const fid_ep* endpoint : known)
    if (const auto ends = ends_of(endpoint)) callers.insert(ends->second);
  std::vector<Caller> present;
  for_each_socket([&](int socket, const SocketAddress& own) {
    if (std::ranges::find(listening_, own) == listening_.end()) return;
    const auto other = other_address(socket);
    if (other && !callers.contains(*other))
      present.push_back({.socket = socket, .address = *other});
  });
  const auto is_in = [](const std::vector<Caller>& all, const Caller& one) {
    return std::ranges::any_of(all, [&](const Caller& other) {
      return other.socket == one.socket && other.address == one.address;
    });
  };
  std::erase_if(unknown_, [&](const Caller& one) { return !is_in(present, one); });
  for (const Caller& one : present)
    if (!is_in(unknown_, one)) unknown_.push_back(one);
}

void FabricCallers::end(Caller& caller) {
  ::shutdown(caller.socket, SHUT_RDWR);
  caller.ended = true;
}

bool FabricCallers::limit(const std::vector<const fid_ep*>& known) {
  look(known);
  const auto open = static_cast<std::size_t>(
      std::ranges::count_if(unknown_, [](const Caller& one) { return !one.ended; }));
  std::size_t surplus = open > max_unknown_ ? open - max_unknown_ : 0;
  const bool is_over = surplus > 0;
  for (Caller& one : unknown_)
    if (!one.ended && surplus > 0) {
      end(one);
      --surplus;
    }
  return is_over;
}

bool FabricCallers::close(const std::vector<const fid_ep*>& known) {
  constexpr int max_waiting = 4096;  // the longest queue of a listening socket by default
  sock_filter nothing = BPF_STMT(BPF_RET | BPF_K, 0);
  const sock_fprog filter{.len = 1, .filter = &nothing};
  std::size_t closed = 0;
  for_each_socket([&](int socket, const SocketAddress& own) {
    if (std::ranges::find(listening_, own) == listening_.end() || !listens(socket)) return;
    if (::setsockopt(socket, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof filter) == 0) ++closed;
    for (int i = 0; i < max_waiting && is_readable(socket); ++i) {
      // One that libfabric has not accepted yet.
      const node::FileDescriptor caller(::accept4(socket, nullptr, nullptr, SOCK_CLOEXEC));
      if (!caller.valid()) break;
    }
  });
  look(known);
  for (Caller& one : unknown_) end(one);
  return closed == listening_.size();
}

}  // namespace kolo::internal::messenger
