// SPDX-License-Identifier: Apache-2.0
// The command line's options.
#pragma once

#include <cstdint>
#include <optional>

#include "shared_options.hpp"

namespace local_sgd {

/// When the ranks communicate.
enum class Algorithm : std::uint8_t {
  average,  ///< Gradients are averaged in every step.
  local,    ///< Parameters are averaged after every `interval` steps (local SGD).
  diloco    ///< The average change of `interval` steps is an outer optimizer's gradient (DiLoCo).
};

struct Options : cifar10::SharedOptions {
  Options() { epochs = 5; }

  Algorithm algorithm = Algorithm::local;
  std::int64_t interval = 16;
  double outer_rate = 0.7;
  double outer_momentum = 0.9;
  double learning_rate = 0.01;
  double momentum = 0.9;
};

/// Parses the command line. Returns no options if --help was given, which rank 0 prints. Throws
/// std::runtime_error.
[[nodiscard]] std::optional<Options> parse_options(int argc, char** argv);

}  // namespace local_sgd
