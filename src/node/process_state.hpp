// What the operating system says a process is doing.
#pragma once

#include <sys/types.h>

#include <cstdint>

namespace kolo::node {

enum class ProcessState : std::uint8_t {
  unknown,          // it cannot be seen
  alive,            // runs, or sleeps until there is something to do
  stopped,          // by a signal (state T)
  traced,           // held by a debugger (state t)
  uninterruptible,  // in a system call that does not end (state D)
  ended,            // gone, or a zombie
};

/// Asks /proc. Never throws.
[[nodiscard]] ProcessState process_state(pid_t process) noexcept;

/// Whether a thread of this process other than the caller runs, or would if it had a processor.
/// False if it cannot be seen.
[[nodiscard]] bool other_threads_run() noexcept;

}  // namespace kolo::node
