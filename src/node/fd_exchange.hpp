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

/// What came from the process with that index.
using FdReceiver = std::function<void(int index, ReceivedFds received)>;

/// All processes of the group call this at once; none learns of another's failure. `receive` gets
/// the others' descriptors one process after another, in any order, from processes of the same user
/// only. It should close what it does not need: with many ranks, all of them together may be more
/// than a process may have. `while_waiting` is called every few milliseconds. Throws BackendError,
/// also after `timeout`, and what `receive` throws, but not before the others have what they need.
void exchange_fds(const FdInbox& own, const FdExchangeGroup& group,
                  std::span<const int> descriptors, const FdReceiver& receive,
                  const std::function<void()>& while_waiting, std::chrono::nanoseconds timeout);

}  // namespace kolo::internal::node
