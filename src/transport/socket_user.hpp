// SPDX-License-Identifier: Apache-2.0
// The user at the other end of a TCP connection.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>

#include "node/file_descriptor.hpp"

namespace kolo::internal::transport {

/// Asks the kernel, over a socket of its own that is opened once, so that a process without free
/// descriptors can still ask.
class SocketUsers {
 public:
  SocketUsers();

  /// The user who opened the other end of a TCP connection. None if the other end is on another
  /// host or in another network namespace, or its process has closed it or has not accepted it yet,
  /// or this process may not ask.
  [[nodiscard]] std::optional<uid_t> at_other_end_of(int socket);
  /// True if the other end belongs to another user of this host, who must not take part in a job.
  [[nodiscard]] bool is_foreign(int socket);

 private:
  void open();

  node::FileDescriptor kernel_;
  std::uint32_t requests_ = 0;
};

}  // namespace kolo::internal::transport
