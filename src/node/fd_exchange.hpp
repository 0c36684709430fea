// SPDX-License-Identifier: Apache-2.0
// Gives the processes of one host each other's file descriptors.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "node/file_descriptor.hpp"

namespace kolo::internal::node {

/// What came from one process.
struct ReceivedFds {
  pid_t pid = 0;  // as seen here
  std::vector<FileDescriptor> fds{};
};

/// The socket at which a process receives descriptors. It has no place in the file system, and its
/// number is random. It is open before any process sends, so that none has to wait for it.
class FdInbox {
 public:
  /// Throws BackendError.
  FdInbox();

  /// By which other processes of the host find it; never 0.
  [[nodiscard]] std::uint64_t number() const { return number_; }
  [[nodiscard]] int fd() const { return socket_.get(); }

 private:
  std::uint64_t number_;
  FileDescriptor socket_;
};

/// The inboxes of all processes that exchange descriptors, and which of them this process is.
struct FdExchangeGroup {
  std::vector<std::uint64_t> inboxes{};
  int index = 0;
};

/// All processes of the group call this at once; none learns of another's failure. Each
/// gets the others' descriptors by index, its own place being empty, and accepts them from
/// processes of the same user only. `while_waiting` is called every few milliseconds. Throws
/// BackendError, also after `timeout`.
[[nodiscard]] std::vector<ReceivedFds> exchange_fds(const FdInbox& own,
                                                    const FdExchangeGroup& group,
                                                    std::span<const int> descriptors,
                                                    const std::function<void()>& while_waiting,
                                                    std::chrono::nanoseconds timeout);

}  // namespace kolo::internal::node
