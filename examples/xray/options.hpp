// SPDX-License-Identifier: Apache-2.0
// The command line's options.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>

namespace xray {

struct Options {
  std::filesystem::path data{};
  int generate = 0;
  int epochs_total = 24;
  std::size_t batch_size = 16;
  std::size_t image_size = 64;
  double learning_rate = 1e-3;
  double warmup_epochs = 1;
  double validation_fraction = 0.2;
  int patience = 5;
  bool compare = false;
  std::uint64_t seed = 42;
  int threads = 1;
  int loader_threads = 1;
};

/// Parses the command line. Returns nothing for --help. Throws std::runtime_error if it is invalid.
[[nodiscard]] std::optional<Options> parse_options(int argc, char** argv);

}  // namespace xray
