// SPDX-License-Identifier: Apache-2.0
// The command line's options.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>

#include "model.hpp"

namespace large {

/// The part of parameters, gradients and optimizer state that each rank holds.
enum class Kind : std::uint8_t {
  none,  ///< Everything: kolo::DistributedOptimizer.
  full   ///< A share: kolo::FullySharded.
};

struct Options {
  Kind sharding = Kind::full;
  Shape shape{};
  std::filesystem::path text{};  // "": generate stories
  std::size_t text_size = 1'000'000;
  std::int64_t steps = 20;
  std::int64_t batch_size = 1;  // windows per rank
  double learning_rate = 3e-4;
  double clip = 1.0;  // the largest norm of the gradient; 0: any
  int units_ahead = 1;
  std::filesystem::path load{};
  std::filesystem::path save{};
  int threads = 1;
  std::uint64_t seed = 1;
};

/// Returns no options if --help was given. Throws examples::UsageError.
[[nodiscard]] std::optional<Options> parse_options(int argc, char** argv);

}  // namespace large
