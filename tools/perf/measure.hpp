// SPDX-License-Identifier: Apache-2.0
// Times the iterations of a workload, and the processor time of an idle session.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <random>
#include <vector>

#include "options.hpp"
#include "statistics.hpp"
#include "workload.hpp"
#include "world.hpp"

namespace perf {

/// The result of one side, equal on all ranks.
struct SideResult {
  Latency latency{};
  std::int64_t wrong = 0;  ///< Wrong elements over all ranks and iterations, warm-up included.
};

struct Measurement {
  SideResult kolo{};
  std::optional<SideResult> mpi{};  ///< Absent if MPI has no equivalent.
};

/// Measures rows one after the other. All ranks measure the same rows in the same order.
class Meter {
 public:
  /// Both references must outlive the meter.
  Meter(const Options& options, const World& world);

  /// Calls `progress` with the iteration that begins, on every rank.
  [[nodiscard]] Measurement measure(Workload& workload, const std::function<void(int)>& progress);

 private:
  struct Samples {
    // time at which this rank began each counted iteration, in seconds
    std::vector<double> entered{};
    std::vector<double> left{};
    std::int64_t wrong = 0;
  };

  void iterate(Workload& workload, Side side, int iteration, Samples& samples);
  void meet();
  [[nodiscard]] SideResult conclude(Samples& samples, bool data) const;

  const Options& options_;
  const World& world_;
  std::mt19937_64 random_;
};

/// Runs some traffic, then measures `seconds` without any. Returns each rank's processor use in
/// that time, over all its threads, in percent of one core. Collective; equal on all ranks.
[[nodiscard]] std::vector<double> measure_idle(double seconds, const World& world);

}  // namespace perf
