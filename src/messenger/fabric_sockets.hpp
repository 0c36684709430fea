// SPDX-License-Identifier: Apache-2.0
// The sockets of libfabric's endpoints over TCP, which libfabric does not disclose.
#pragma once

#include <array>
#include <cstddef>
#include <utility>
#include <vector>

#include "messenger/fabric_library.hpp"
#include "transport/handshake.hpp"
#include "transport/socket_address.hpp"

namespace kolo::internal::messenger {

/// Eight bytes at the end of each call, without which the kernel drops the call. All ranks derive
/// them from the secret of the session. They keep strangers away from libfabric, which crashes or
/// blocks if it reads certain bytes. They prove nothing: anyone who can read a call can repeat
/// them.
using Pass = std::array<std::byte, 8>;
[[nodiscard]] Pass pass_of(const transport::Secret& secret);

/// Makes the kernel drop what callers at this address send, unless it ends with the pass, until
/// `FabricCallers::admit`.
void require_pass(const transport::SocketAddress& listening, const Pass& pass);

/// The socket of each connected endpoint, found by comparing addresses. -1 if it has none.
[[nodiscard]] std::vector<int> find_sockets(const std::vector<const fid_ep*>& endpoints);

/// Limits the time for which libfabric blocks while it reads the first bytes of a caller at this
/// address. Without a limit, a stranger who sends a part of them would stop it for good.
void limit_blocking(const transport::SocketAddress& listening);

/// Limits the cost of strangers who connect to the passive endpoints of this rank. libfabric
/// accepts all connections, keeps those that never say anything, and offers no call that closes
/// them. So their sockets are shut down, which libfabric takes for the end of the connection.
class FabricCallers {
 public:
  /// `listening`: the addresses of the passive endpoints.
  FabricCallers(std::vector<transport::SocketAddress> listening, std::size_t max_unknown)
      : listening_(std::move(listening)), max_unknown_(max_unknown) {}

  /// Lets through everything that the other sides of these endpoints send from now on.
  static void admit(const std::vector<const fid_ep*>& endpoints);

  /// Shuts down the oldest connections beyond the limit among those that belong to none of the
  /// endpoints `known`. Returns true if there were any.
  bool limit(const std::vector<const fid_ep*>& known);

  /// Shuts down all connections that belong to none of the endpoints `known`, and makes the kernel
  /// ignore further ones: a passive endpoint cannot be closed before the event queue. False if the
  /// kernel does not do so.
  [[nodiscard]] bool close(const std::vector<const fid_ep*>& known);

 private:
  using SocketAddress = transport::SocketAddress;
  struct Caller {
    int socket;
    SocketAddress address;
    bool ended = false;  // shut down, but libfabric has not closed it yet
  };

  void look(const std::vector<const fid_ep*>& known);
  static void end(Caller& caller);

  std::vector<SocketAddress> listening_;
  std::size_t max_unknown_;
  std::vector<Caller> unknown_{};  // oldest first
};

}  // namespace kolo::internal::messenger
