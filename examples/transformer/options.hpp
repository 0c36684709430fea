// What can be chosen on the command line.
#pragma once

#include <cstdint>
#include <filesystem>
#include <kolo/kolo.hpp>
#include <optional>

#include "layout.hpp"

namespace gpt {

struct Options {
  std::filesystem::path text{};  // "": stories are generated
  std::size_t text_size = 200'000;
  Config network{};
  std::int64_t steps = 500;
  std::int64_t stop_at = 0;     // a step; 0: none
  std::int64_t batch_size = 8;  // windows of a rank in one pass
  int accumulate = 1;           // passes of a step
  double learning_rate = 3e-3;
  std::int64_t warmup = 20;  // steps
  double clip = 1.0;
  kolo::Compression compression = kolo::Compression::none;
  std::filesystem::path checkpoints{};
  std::int64_t validate_every = 100;
  std::int64_t log_every = 50;
  int sample = 240;  // bytes
  std::uint64_t seed = 1;
};

/// Nothing if help was asked for, which is then printed if `speak`. Throws std::runtime_error for
/// options that cannot be used.
[[nodiscard]] std::optional<Options> parse_options(int argc, char** argv, bool speak);

}  // namespace gpt
