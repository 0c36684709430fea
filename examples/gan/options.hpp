// SPDX-License-Identifier: Apache-2.0
// The command line's options.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "shared_options.hpp"

namespace gan {

struct Options : cifar10::SharedOptions {
  Options() { epochs = 10; }

  int label = 1;  ///< Class of the images to imitate: 1 is automobiles. -1: all images.
  double learning_rate = 2e-4;
  std::int64_t noise = 64;
  std::int64_t width = 32;
  std::filesystem::path samples{};
};

/// Parses the command line. Returns no options if --help was given, which rank 0 prints. Throws
/// std::runtime_error.
[[nodiscard]] std::optional<Options> parse_options(int argc, char** argv);

}  // namespace gan
