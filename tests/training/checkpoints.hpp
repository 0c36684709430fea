// SPDX-License-Identifier: Apache-2.0
// The fixture of the tests of Checkpointer.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "../session/fixture.hpp"
#include "checkpoint_contents.hpp"
#include "kolo/training/checkpoint.hpp"
#include "scratch_directory.hpp"
#include "training/checkpoint/checkpoint_files.hpp"

namespace kolo::internal::testing_support {

template <typename Action>
CheckpointError checkpoint_error_of(const Action& action) {
  try {
    action();
  } catch (const CheckpointError& error) {
    return error;
  }
  ADD_FAILURE() << "no CheckpointError";
  return {CheckpointFault::io, {}, ""};
}

// A fixture with a directory, whose path only rank 0 knows beforehand.
class Checkpoints : public WithSession {
 protected:
  Checkpoints() {
    if (me_ == 0) directory_.emplace();
  }

  [[nodiscard]] std::filesystem::path directory() const {
    return me_ == 0 ? directory_->path() / "run" : std::filesystem::path("/known/to/rank/0/only");
  }

  [[nodiscard]] CheckpointerOptions keeping(int last, Goal best = Goal::minimum) const {
    return {.directory = directory(), .keep_last = last, .best = best};
  }

  [[nodiscard]] NamedViews parts(std::int64_t step) const {
    if (me_ != 0) return {};
    return {{"model", "model of step " + std::to_string(step)}, {"zeros", std::string(5000, '\0')}};
  }

  // The steps of the existing checkpoints, on all ranks.
  [[nodiscard]] std::vector<std::int64_t> steps() const {
    std::string found;
    if (me_ == 0) {
      for (const auto& entry : std::filesystem::directory_iterator(directory())) {
        found += entry.path().filename().string() + '\n';
      }
    }
    broadcast(found, 0);
    std::set<std::int64_t> steps;
    std::istringstream lines(found);
    for (std::string line; std::getline(lines, line);) {
      const std::string start = "checkpoint-";
      if (line.starts_with(start) && line.find('.') == std::string::npos) {
        steps.insert(std::stoll(line.substr(start.size())));
      } else {
        ADD_FAILURE() << "what is '" << line << "'?";
      }
    }
    return {steps.begin(), steps.end()};
  }

  // The file of rank 0 in a checkpoint.
  [[nodiscard]] std::filesystem::path first_file(const std::filesystem::path& checkpoint) const {
    return checkpoint_file(checkpoint, 0, n_);
  }

  void damage(const std::filesystem::path& checkpoint, std::int64_t keep_bytes) const {
    if (me_ == 0)
      std::filesystem::resize_file(first_file(checkpoint), static_cast<std::uintmax_t>(keep_bytes));
  }

  std::optional<ScratchDirectory> directory_;
};

}  // namespace kolo::internal::testing_support
