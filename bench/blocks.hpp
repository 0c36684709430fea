// SPDX-License-Identifier: Apache-2.0
// Options and timing of the benchmarks of training steps, which alternate blocks of steps.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <kolo/kolo.hpp>
#include <stdexcept>
#include <string>
#include <vector>

namespace blocks {

struct Options {
  std::int64_t batch_size = 64;
  int steps = 10;
  int rounds = 10;
  std::string text{};  // value of the benchmark's one text option
};

/// `options`, overridden by the command line. Throws std::invalid_argument.
inline Options read_options(int argc, char** argv, const std::string& text_option,
                            Options options) {
  for (int i = 1; i < argc; i += 2) {
    const std::string name = argv[i];
    if (i + 1 == argc) throw std::invalid_argument(name + " needs a value");
    if (name == text_option) {
      options.text = argv[i + 1];
      continue;
    }
    const int value = std::stoi(argv[i + 1]);
    if (value < 1) throw std::invalid_argument(name + " must be at least 1");
    if (name == "--batch-size") {
      options.batch_size = value;
    } else if (name == "--steps") {
      options.steps = value;
    } else if (name == "--rounds") {
      options.rounds = value;
    } else {
      throw std::invalid_argument("unknown option " + name);
    }
  }
  return options;
}

/// The time of a block of steps on the slowest rank, in milliseconds.
inline double time_of(int steps, const std::function<void()>& step) {
  kolo::barrier();
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < steps; ++i) step();
  double milliseconds =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  kolo::allreduce(milliseconds, {.name = "milliseconds", .op = kolo::ReduceOp::max});
  return milliseconds;
}

inline double median(std::vector<double> values) {
  std::ranges::sort(values);
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

/// The kind of the `i`-th block in a round. Each round begins with a different kind.
inline std::size_t place(std::size_t i, int round, std::size_t kinds) {
  return (i + static_cast<std::size_t>(round)) % kinds;
}

}  // namespace blocks
