// The measurement.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "options.hpp"

namespace benchmark {

/// Images per second. One value per iteration unless said otherwise.
struct Measurement {
  std::string device;             ///< "CPU" or "GPU".
  std::int64_t parameters = 0;    ///< How many numbers the model learns.
  std::vector<double> steps;      ///< This rank's, of each batch.
  std::vector<double> this_rank;  ///< This rank's, with the exchange of gradients.
  std::vector<double> all_ranks;  ///< The ranks' sum.
  std::vector<double> one_alone;  ///< Rank 0's, while the others wait. Empty if not asked for.
  std::vector<double>
      side_by_side;  ///< The ranks' sum, all at once without any exchange. Likewise.
};

/// Trains and measures. Prints lines on rank 0 while it goes on, unless JSON is wanted. Collective.
[[nodiscard]] Measurement measure(const Options& options);

}  // namespace benchmark
