// The clock of all measurements.
#pragma once

#include <ctime>

namespace perf {

/// Seconds of CLOCK_MONOTONIC, which is one clock for all processes of a machine.
[[nodiscard]] inline double now() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

}  // namespace perf
