// SPDX-License-Identifier: Apache-2.0
// Exchanges file descriptors between the processes of one host.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "node/file_descriptor.hpp"

namespace kolo::internal::node {

/// The descriptors of one process.
struct ReceivedFds {
  pid_t pid = 0;  // the number in this process's PID namespace
  std::vector<FileDescriptor> fds{};
};

/// The socket at which a process receives descriptors. While it lives, it has a name in a directory
/// of /tmp, or of /dev/shm if /tmp is full or not writable, that only this user can enter. Each
/// process opens its inbox before any process sends, so that none has to wait for another's inbox.
class FdInbox {
 public:
  /// Throws BackendError.
  FdInbox();
  FdInbox(FdInbox&&) noexcept = default;
  ~FdInbox();

  /// The number by which other processes of the host address the inbox; never 0.
  [[nodiscard]] std::uint64_t number() const { return number_; }
  [[nodiscard]] int fd() const { return socket_.get(); }

 private:
  std::uint64_t number_;
  FileDescriptor socket_;
};

/// The inboxes of all processes that exchange descriptors, and the index of this process's own.
struct FdExchangeGroup {
  std::vector<std::uint64_t> inboxes{};
  int index = 0;
};

/// Receives the descriptors of the process with that index.
using FdReceiver = std::function<void(int index, ReceivedFds received)>;

/// All processes of the group call this at the same time. A process does not learn of another's
/// failure. `receive` gets the descriptors of the other processes one process after another, in any
/// order, and only from processes of the same user. It should close descriptors that it does not
/// need: with many ranks, all of them together may exceed the limit of open files. `while_waiting`
/// is called every few milliseconds. Throws BackendError, also after `timeout`, and rethrows
/// exceptions of `receive`, but only after the other processes have what they need.
void exchange_fds(const FdInbox& own, const FdExchangeGroup& group,
                  std::span<const int> descriptors, const FdReceiver& receive,
                  const std::function<void()>& while_waiting, std::chrono::nanoseconds timeout);

}  // namespace kolo::internal::node
