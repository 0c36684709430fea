// SPDX-License-Identifier: Apache-2.0
// The state of a process according to the operating system.
#pragma once

#include <sys/types.h>

#include "base/activity.hpp"

namespace kolo::internal::node {

/// Asks /proc. Never throws.
[[nodiscard]] ProcessState process_state(pid_t process) noexcept;

/// Whether a thread of this process other than the caller runs, or would if it had a processor.
/// False if it cannot be seen.
[[nodiscard]] bool other_threads_run() noexcept;

}  // namespace kolo::internal::node
