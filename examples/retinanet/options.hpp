// SPDX-License-Identifier: Apache-2.0
// The command line's options.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace retinanet {

struct Options {
  std::filesystem::path data{};
  std::size_t generate = 0;
  std::filesystem::path save{};
  std::filesystem::path pictures{};
  std::size_t pictures_count = 8;
  double min_score = 0.3;
  std::string evaluate = "val";
  int evaluate_every = 0;
  std::string backbone = "resnet50";
  std::filesystem::path backbone_weights{};
  std::int64_t channels = 256;
  std::int64_t head_layers = 4;
  std::size_t image_size = 512;
  double anchor_size = 4.0;
  int epochs = 12;
  std::size_t batch_size = 2;
  double learning_rate = 4e-3;
  double warmup_epochs = 1.0;
  bool mirror = true;
  std::uint64_t seed = 42;
  int threads = 1;
  int loader_threads = 1;

  /// Parts of the data set to evaluate: `train`, `val` or both.
  [[nodiscard]] std::vector<std::string> parts_to_evaluate() const;
};

/// Parses the command line. Returns nothing for --help. Throws std::runtime_error if it is invalid.
[[nodiscard]] std::optional<Options> parse_options(int argc, char** argv);

}  // namespace retinanet
