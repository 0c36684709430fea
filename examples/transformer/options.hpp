// SPDX-License-Identifier: Apache-2.0
// The command line's options.
#pragma once

#include <cstdint>
#include <filesystem>
#include <kolo/kolo.hpp>
#include <optional>

#include "layout.hpp"

namespace gpt {

struct Options {
  std::filesystem::path text{};  // "": generate stories
  std::size_t text_size = 200'000;
  Config network{};
  std::int64_t steps = 500;
  std::int64_t stop_at = 0;     // step to stop at; 0: none
  std::int64_t batch_size = 8;  // windows per rank and pass
  int accumulate = 1;           // passes per step
  double learning_rate = 3e-3;
  std::int64_t warmup = 20;  // warm-up steps
  double clip = 1.0;
  kolo::Compression compression = kolo::Compression::none;
  std::optional<kolo::Sharding> sharding{};
  bool fully_sharded = false;  // parameters, too
  std::filesystem::path checkpoints{};
  std::int64_t validate_every = 100;
  std::int64_t log_every = 50;
  int sample = 240;  // bytes to generate
  std::uint64_t seed = 1;
};

/// Returns nothing for --help, which is printed if `speak` is true. Throws std::runtime_error for
/// invalid options.
[[nodiscard]] std::optional<Options> parse_options(int argc, char** argv, bool speak);

}  // namespace gpt
