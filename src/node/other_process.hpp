// SPDX-License-Identifier: Apache-2.0
// The process of another rank of this host.
#pragma once

#include <sys/types.h>

#include <cstdint>

#include "node/file_descriptor.hpp"

namespace kolo::internal::node {

/// Follows the process by a pidfd, or by /proc if the kernel has none. Thread-safe.
class OtherProcess {
 public:
  /// Represents this process itself, which never counts as ended.
  OtherProcess() = default;
  /// Throws BackendError if this process cannot see `pid`.
  explicit OtherProcess(pid_t pid);

  /// The process number in this PID namespace.
  [[nodiscard]] pid_t pid() const { return pid_; }
  /// Readable once the process has ended. Not valid in kernels before 5.3 and under some seccomp
  /// filters, which have no pidfds.
  [[nodiscard]] const FileDescriptor& pidfd() const { return pidfd_; }
  /// True if the process has ended, for whatever reason.
  [[nodiscard]] bool ended() const noexcept;
  /// Sends SIGKILL unless the process has ended.
  void kill() const noexcept;

 private:
  FileDescriptor pidfd_{};
  pid_t pid_ = 0;
  std::uint64_t started_ = 0;  // from `start_of_process`
};

}  // namespace kolo::internal::node
