// What rank 0 prints.
#pragma once

#include "benchmark.hpp"
#include "options.hpp"

namespace benchmark {

/// Lines while the measurement goes on, as Horovod's benchmark or tf_cnn_benchmarks print them;
/// none for JSON. On the other ranks it is silent. Both arguments must outlive it.
class LiveReport {
 public:
  /// Prints what is measured.
  LiveReport(const Options& options, const Measurement& results);
  /// The warm-up is over.
  void begin() const;
  /// An iteration is in `results`.
  void iteration(int number, double loss) const;

 private:
  const Options& options_;
  const Measurement& results_;
  bool silent_;
};

/// The results of all ranks, as text or JSON.
void print_results(const Options& options, const Measurement& results);

}  // namespace benchmark
