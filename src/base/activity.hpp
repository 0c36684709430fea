// SPDX-License-Identifier: Apache-2.0
// The state of a process, as the operating system reports it, and the phases of a batch.
#pragma once

#include <chrono>
#include <cstdint>

namespace kolo::internal {

enum class ProcessState : std::uint8_t {
  unknown,          // cannot be determined
  alive,            // runs or sleeps
  stopped,          // halted by a signal (state T)
  traced,           // held by a debugger (state t)
  uninterruptible,  // in a system call that does not end (state D)
  ended,            // gone, or a zombie
  last = ended,
};

/// A part of a batch's execution whose time is measured.
enum class Phase : std::uint8_t { pack, reduce, unpack, last = unpack };

/// Receives the phases of batches. The driver calls it in the middle of a step of progress.
class PhaseObserver {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  virtual ~PhaseObserver() = default;
  virtual void on_phase(std::uint64_t batch, Phase phase, TimePoint begin, TimePoint end) = 0;
};

}  // namespace kolo::internal
