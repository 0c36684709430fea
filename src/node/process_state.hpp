// SPDX-License-Identifier: Apache-2.0
// The state of a process according to the operating system.
#pragma once

#include <sys/types.h>

#include <cstdint>

#include "base/activity.hpp"

namespace kolo::internal::node {

/// Asks /proc. Never throws.
[[nodiscard]] ProcessState process_state(pid_t process) noexcept;

/// When the process was started, in the kernel's units; 0 if it cannot be seen.
[[nodiscard]] std::uint64_t start_of_process(pid_t process) noexcept;
/// Asks /proc whether the process that started then has ended. Its number may belong to another
/// since.
[[nodiscard]] bool process_ended(pid_t process, std::uint64_t started) noexcept;

/// Whether a thread of this process other than the caller runs, or would if it had a processor.
/// False if it cannot be seen.
[[nodiscard]] bool other_threads_run() noexcept;

}  // namespace kolo::internal::node
