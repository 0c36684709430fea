// SPDX-License-Identifier: Apache-2.0
// The report that rank 0 prints.
#pragma once

#include <functional>

#include "benchmark.hpp"
#include "options.hpp"

namespace benchmark {

/// Prints progress in the format of Horovod's benchmark or of tf_cnn_benchmarks; nothing for JSON,
/// and nothing on other ranks. Both arguments must outlive it.
class LiveReport {
 public:
  /// Prints the configuration.
  LiveReport(const Options& options, const Measurement& results);
  /// Prints that the warm-up is over.
  void begin() const;
  /// Prints the steps in `results`, if the format has a line for the newest step.
  void step(const std::function<double()>& loss) const;
  /// Prints the newest iteration in `results`, if the format has lines for iterations.
  void iteration(int number) const;

 private:
  const Options& options_;
  const Measurement& results_;
  bool silent_;
};

/// The results of all ranks, as text or JSON.
void print_results(const Options& options, const Measurement& results);

}  // namespace benchmark
