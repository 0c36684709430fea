// SPDX-License-Identifier: Apache-2.0
// The user at the other end of a TCP connection.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

#include "node/file_descriptor.hpp"

namespace kolo::internal::transport {

struct SocketRequest;

/// The holder of the other end of a connection.
enum class OtherEnd : std::uint8_t {
  same_user,
  other_user,
  hidden,     ///< on this host, but the kernel finds nobody who holds it
  elsewhere,  ///< on another host, or in another network namespace
  unknown,    ///< this process may not ask the kernel
};

/// True if the other end must not take part in a job of this user: another user of this host holds
/// it, or it hides who does and the job has no secret that would decide.
[[nodiscard]] bool is_foreign(OtherEnd end, bool has_secret);

/// Asks the kernel, over a socket of its own that is opened once, so that a process without free
/// descriptors can still ask.
class SocketUsers {
 public:
  SocketUsers();

  /// Finds out who holds the other end of a TCP connection. It is hidden, too, if its process has
  /// closed it, or has not accepted it yet.
  [[nodiscard]] OtherEnd at_other_end_of(int socket);

 private:
  struct Found {
    bool is_held = false;  // there is such a socket, and a process holds it
    uid_t user = 0;
  };

  void open();
  void list_own_addresses();
  [[nodiscard]] bool is_own(const sockaddr_storage& address);
  /// Empty if the kernel does not answer.
  [[nodiscard]] std::optional<Found> ask(SocketRequest& request);
  [[nodiscard]] bool finds_own_end(SocketRequest request);

  node::FileDescriptor kernel_;
  std::uint32_t requests_ = 0;
  std::vector<in6_addr> own_addresses_{};  // this network namespace's; IPv4 as in ::ffff:0:0/96
  std::chrono::steady_clock::time_point listed_at_{};
};

}  // namespace kolo::internal::transport
