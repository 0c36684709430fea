// SPDX-License-Identifier: Apache-2.0
// The command line's options.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>

namespace tfrecord {

struct Options {
  std::filesystem::path data;
  std::int64_t epochs = 10;
  std::size_t batch_size = 128;
  double learning_rate = 0.01;
  double momentum = 0.9;
  double weight_decay = 2e-4;
  double warmup_epochs = 5;
  int patience = 10;
  std::filesystem::path checkpoints;
  std::uint64_t seed = 42;
  int threads = 1;
  int loader_threads = 1;
};

/// Returns nothing for --help. Throws std::runtime_error for an invalid command line.
[[nodiscard]] std::optional<Options> parse_options(int argc, char** argv);

}  // namespace tfrecord
