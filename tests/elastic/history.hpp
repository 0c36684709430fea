// SPDX-License-Identifier: Apache-2.0
// The history of a training: the number of ranks of each step.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

namespace kolo::internal {

/// A part of a State. Its size grows with the changes of the number of ranks, not with the steps.
class History {
 public:
  void add(int ranks) {
    if (runs_.empty() || runs_.back().ranks != ranks) runs_.push_back({ranks, 0});
    ++runs_.back().steps;
  }
  [[nodiscard]] std::size_t steps() const {
    std::size_t steps = 0;
    for (const Run& run : runs_) steps += static_cast<std::size_t>(run.steps);
    return steps;
  }
  /// The smallest number of ranks so far.
  [[nodiscard]] std::int64_t min() const {
    std::int64_t fewest = std::numeric_limits<std::int64_t>::max();
    for (const Run& run : runs_) fewest = std::min(fewest, run.ranks);
    return fewest;
  }
  /// The number of ranks in the last step.
  [[nodiscard]] int last() const {
    return runs_.empty() ? 0 : static_cast<int>(runs_.back().ranks);
  }
  /// The numbers of ranks, one after each change.
  [[nodiscard]] std::vector<std::int64_t> numbers_of_ranks() const {
    std::vector<std::int64_t> numbers;
    for (const Run& run : runs_) numbers.push_back(run.ranks);
    return numbers;
  }
  template <typename F>
  void for_each_step(F&& call) const {
    for (const Run& run : runs_)
      for (std::int64_t step = 0; step < run.steps; ++step) call(static_cast<int>(run.ranks));
  }

  [[nodiscard]] std::string state() const {
    return {reinterpret_cast<const char*>(runs_.data()), runs_.size() * sizeof(Run)};
  }
  void load_state(const std::string& bytes) {
    runs_.resize(bytes.size() / sizeof(Run));
    if (!runs_.empty()) std::memcpy(runs_.data(), bytes.data(), bytes.size());
  }

 private:
  struct Run {
    std::int64_t ranks;
    std::int64_t steps;
  };
  std::vector<Run> runs_{};
};

}  // namespace kolo::internal
