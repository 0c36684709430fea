// SPDX-License-Identifier: Apache-2.0
// The command line's options.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "shared_options.hpp"

namespace cifar10 {

struct Options : SharedOptions {
  Options() { epochs = 25; }

  std::filesystem::path download{};
  std::int64_t epochs_total = 0;  ///< Summed over all ranks; 0: each rank trains for `epochs`.
  double learning_rate = 1e-4;
  std::filesystem::path save{};
  std::int64_t save_every = 0;
  std::filesystem::path resume{};
  bool augment = true;
  int loader_threads = 1;
  std::string device = "auto";
  bool bf16 = false;
  std::string compression = "none";  ///< Of gradients: none, fp16, bf16, int8 or power-sgd.
};

/// Parses the command line. Returns no options if --help was given, which rank 0 prints. Throws
/// std::runtime_error.
[[nodiscard]] std::optional<Options> parse_options(int argc, char** argv);

}  // namespace cifar10
