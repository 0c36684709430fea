// SPDX-License-Identifier: Apache-2.0
// The state of a process, read from /proc.
#pragma once

#include <sys/types.h>

#include <cstdint>

#include "base/activity.hpp"

namespace kolo::internal::node {

/// Never throws: a state that cannot be read is `unknown`.
[[nodiscard]] ProcessState process_state(pid_t process) noexcept;

/// The start time of the process, in the kernel's units; 0 if the process cannot be seen.
[[nodiscard]] std::uint64_t start_of_process(pid_t process) noexcept;
/// True if the process that started at `started` has ended, even if its number has been reused.
[[nodiscard]] bool process_ended(pid_t process, std::uint64_t started) noexcept;

/// True if a thread of this process other than the caller runs, or is ready to run and waits for a
/// processor. False if /proc cannot be read.
[[nodiscard]] bool other_threads_run() noexcept;

}  // namespace kolo::internal::node
