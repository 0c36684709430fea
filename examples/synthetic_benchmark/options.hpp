// SPDX-License-Identifier: Apache-2.0
// The command line's options.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace benchmark {

struct Options {
  std::string model = "resnet50";
  std::int64_t batch_size = 32;
  std::int64_t image_size = 0;  ///< 0: the model's default.
  int warmup_batches = 10;
  int batches_per_iteration = 10;
  int iterations = 10;
  std::string device = "auto";
  bool fp16 = false;
  bool bf16 = false;
  bool scaling_efficiency = false;
  std::string format = "horovod";
  bool json = false;
  int threads = 0;
};

/// Parses the command line. Returns nothing for --help. Throws std::runtime_error if it is invalid.
[[nodiscard]] std::optional<Options> parse_options(int argc, char** argv);

}  // namespace benchmark
