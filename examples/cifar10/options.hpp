// SPDX-License-Identifier: Apache-2.0
// What the command line says.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace cifar10 {

struct Options {
  std::filesystem::path data_dir{};
  std::filesystem::path download{};
  std::int64_t epochs = 25;
  std::size_t batch_size = 32;
  double learning_rate = 1e-4;
  std::uint64_t seed = 42;
  std::filesystem::path save{};
  std::int64_t save_every = 0;
  std::filesystem::path resume{};
  bool augment = true;
  std::size_t limit = 0;
  std::size_t stand_in_size = 10'000;
  int threads = 1;
  int loader_threads = 1;
  std::string device = "auto";
  bool bf16 = false;
};

/// Nothing if only help was asked for, which rank 0 printed. Throws std::runtime_error.
[[nodiscard]] std::optional<Options> parse_options(int argc, char** argv);

}  // namespace cifar10
