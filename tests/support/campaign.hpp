// SPDX-License-Identifier: Apache-2.0
// Campaigns of random programs, one for each seed: their options, their loop, and the report and
// reduction of programs that fail.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "support/command_line.hpp"

namespace kolo::internal::campaign {

/// A program broke a promise. Violations with the same cause have the same `promise`.
class Violation : public std::runtime_error {
 public:
  Violation(std::string promise, const std::string& what)
      : std::runtime_error(promise + ": " + what), promise_(std::move(promise)) {}
  [[nodiscard]] const std::string& promise() const { return promise_; }

 private:
  std::string promise_;
};

struct Options {
  std::uint64_t seed = 0;  // seeds the first program; the others follow
  std::uint64_t runs = std::numeric_limits<std::uint64_t>::max();
  double seconds = std::numeric_limits<double>::infinity();
};

/// Reads `--seed`, `--runs`, `--seconds` and the options of `command_line`. Without a limit on the
/// command line, the campaign has `default_runs` programs.
[[nodiscard]] Options read_options(int argc, char** argv, std::uint64_t default_seed,
                                   std::uint64_t default_runs, CommandLine command_line = {});

/// The seed of the next program, until the campaign reaches a limit of its options. At least one
/// program runs.
class Pace {
 public:
  explicit Pace(const Options& options) : options_(options) {}

  [[nodiscard]] std::uint64_t seed() const { return options_.seed + runs_; }
  [[nodiscard]] std::uint64_t runs() const { return runs_; }
  [[nodiscard]] double seconds() const;
  /// The program of `seed()` has ended. True if another one follows.
  [[nodiscard]] bool advance();

 private:
  Options options_;
  std::uint64_t runs_ = 0;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

struct Outcome {
  std::uint64_t runs = 0;
  double seconds = 0;
  std::map<std::uint64_t, std::string> failures{};  // by seed
};

/// Calls `run(seed)`, which returns a description of a failure or an empty string, in `jobs`
/// threads. Ends early after `max_failures`.
[[nodiscard]] Outcome run_seeds(const Options& options, int jobs, std::size_t max_failures,
                                const std::function<std::string(std::uint64_t seed)>& run);

/// Prints the failure of a program, and the command that repeats it.
void report_failure(std::uint64_t seed, const std::string& failure, const std::string& command);

/// Drops ever shorter ranges of `elements` without which `still_fails(elements)`.
template <typename T, typename StillFails>
[[nodiscard]] std::vector<T> reduce(std::vector<T> elements, StillFails still_fails) {
  for (std::size_t length = std::max<std::size_t>(1, elements.size() / 2);; length /= 2) {
    for (std::size_t end = elements.size(); end > 0;) {
      const std::size_t begin = end - std::min(end, length);
      std::vector<T> fewer = elements;
      fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(begin),
                  fewer.begin() + static_cast<std::ptrdiff_t>(end));
      if (still_fails(fewer)) elements = std::move(fewer);
      end = begin;
    }
    if (length <= 1) return elements;
  }
}

}  // namespace kolo::internal::campaign
