// SPDX-License-Identifier: Apache-2.0
// The state of processes according to the operating system.
#pragma once

#include <sys/types.h>

#include <cstdint>

#include "base/activity.hpp"
#include "node/file_descriptor.hpp"

namespace kolo::internal::node {

/// Asks /proc. Never throws.
[[nodiscard]] ProcessState process_state(pid_t process) noexcept;

/// The time at which the process was started, in the kernel's units; 0 if the process is not
/// visible.
[[nodiscard]] std::uint64_t start_of_process(pid_t process) noexcept;
/// Asks /proc whether the process has ended. `started`: its `start_of_process`, because by now the
/// number may belong to another process.
[[nodiscard]] bool process_ended(pid_t process, std::uint64_t started) noexcept;

/// True if a thread of this process other than the caller runs, or would run if it had a processor.
/// False if the threads are not visible.
[[nodiscard]] bool other_threads_run() noexcept;

/// The process of another rank of this host. Thread-safe.
class OtherProcess {
 public:
  /// Stands for this process itself, which never ends.
  OtherProcess() = default;
  /// Throws BackendError if this process cannot see `pid`.
  explicit OtherProcess(pid_t pid);

  /// The number in this process's PID namespace.
  [[nodiscard]] pid_t pid() const { return pid_; }
  /// Readable once the process has ended. Not valid in kernels before 5.3 and under some seccomp
  /// filters.
  [[nodiscard]] const FileDescriptor& pidfd() const { return pidfd_; }
  /// True if the process has exited or was killed.
  [[nodiscard]] bool ended() const noexcept;
  /// Sends SIGKILL if the process has not ended.
  void kill() const noexcept;

 private:
  FileDescriptor pidfd_{};
  pid_t pid_ = 0;
  std::uint64_t started_ = 0;  // as `start_of_process` returns it
};

}  // namespace kolo::internal::node
