// SPDX-License-Identifier: Apache-2.0
// The process of another rank of this host.
#pragma once

#include <sys/types.h>

#include <cstdint>

#include "node/file_descriptor.hpp"

namespace kolo::internal::node {

/// Thread-safe.
class OtherProcess {
 public:
  /// Of this process itself: it never ends.
  OtherProcess() = default;
  /// Throws BackendError if this process cannot see it.
  explicit OtherProcess(pid_t pid);

  /// Its number, as seen here.
  [[nodiscard]] pid_t pid() const { return pid_; }
  /// Readable once it has ended. Not valid where there are none: in kernels before 5.3, and under
  /// some seccomp filters.
  [[nodiscard]] const FileDescriptor& pidfd() const { return pidfd_; }
  /// However it did.
  [[nodiscard]] bool ended() const noexcept;
  /// Sends SIGKILL, if it has not ended.
  void kill() const noexcept;

 private:
  FileDescriptor pidfd_{};
  pid_t pid_ = 0;
  std::uint64_t started_ = 0;  // as `start_of_process` has it
};

}  // namespace kolo::internal::node
