// SPDX-License-Identifier: Apache-2.0
// What the command line says.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "shared_options.hpp"

namespace gan {

struct Options : cifar10::SharedOptions {
  Options() { epochs = 10; }

  int label = 1;  ///< Of the images to imitate: automobiles. -1: all images.
  double learning_rate = 2e-4;
  std::int64_t noise = 64;
  std::int64_t width = 32;
  std::filesystem::path samples{};
};

/// Nothing if only help was asked for, which rank 0 printed. Throws std::runtime_error.
[[nodiscard]] std::optional<Options> parse_options(int argc, char** argv);

}  // namespace gan
