// SPDX-License-Identifier: Apache-2.0
// What the command line says.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>

namespace gan {

struct Options {
  std::filesystem::path data_dir{};
  int label = 1;  ///< Of the images to imitate: automobiles. -1: all images.
  std::int64_t epochs = 10;
  std::size_t batch_size = 32;
  double learning_rate = 2e-4;
  std::int64_t noise = 64;
  std::int64_t width = 32;
  std::uint64_t seed = 42;
  std::filesystem::path samples{};
  std::size_t limit = 0;
  std::size_t stand_in_size = 10'000;
  int threads = 1;
};

/// Nothing if only help was asked for, which rank 0 printed. Throws std::runtime_error.
[[nodiscard]] std::optional<Options> parse_options(int argc, char** argv);

}  // namespace gan
