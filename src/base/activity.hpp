// What a process does, as the operating system sees it, and what the time of a batch goes into.
#pragma once

#include <cstdint>

namespace kolo::internal {

enum class ProcessState : std::uint8_t {
  unknown,          // it cannot be seen
  alive,            // runs, or sleeps until there is something to do
  stopped,          // by a signal (state T)
  traced,           // held by a debugger (state t)
  uninterruptible,  // in a system call that does not end (state D)
  ended,            // gone, or a zombie
};

/// A part of a batch's execution whose time is measured.
enum class Phase : std::uint8_t { pack, reduce, unpack };

}  // namespace kolo::internal
