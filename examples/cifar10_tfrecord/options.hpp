// SPDX-License-Identifier: Apache-2.0
// The command line's options.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>

namespace CLI {
class App;
}

namespace tfrecord {

struct Options {
  std::filesystem::path data;
  std::int64_t epochs = 25;
  std::size_t batch_size = 128;
  double learning_rate = 0.01;
  double momentum = 0.9;
  double weight_decay = 2e-4;
  std::filesystem::path checkpoints;
  std::uint64_t seed = 42;
  int threads = 1;
  // Only in distributed.cpp:
  double warmup_epochs = 5;
  int patience = 10;
};

/// Adds the options that both programs have.
void add_options(CLI::App& app, Options& options);

}  // namespace tfrecord
