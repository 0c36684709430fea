// Runs a workload's iterations and times them.
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

/// Of one side, alike on all ranks.
struct SideResult {
  Latency latency{};
  std::int64_t wrong = 0;  ///< Over all ranks and iterations, warm-up included.
};

struct Measurement {
  SideResult kolo{};
  std::optional<SideResult> mpi{};  ///< Nothing where MPI has no equivalent.
};

/// Measures row after row, on all ranks alike.
class Meter {
 public:
  /// Both are borrowed.
  Meter(const Options& options, const World& world);

  /// `progress` is told, on every rank, which iteration begins.
  [[nodiscard]] Measurement measure(Workload& workload, const std::function<void(int)>& progress);

 private:
  struct Samples {
    std::vector<double> entered{};  // seconds, by this rank, one per iteration that counts
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

}  // namespace perf
