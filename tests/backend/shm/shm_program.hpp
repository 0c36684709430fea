// SPDX-License-Identifier: Apache-2.0
// Random batches for the ranks of a host, with their expected results.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "../tensors.hpp"
#include "backend/backend.hpp"

namespace kolo::internal::backend {

/// One batch, the same for all its ranks.
struct Step {
  Descriptor kind;
  std::vector<int> set;
  std::vector<int> ranks;
  std::int64_t divisor = 1;
  std::uint64_t sequence = 0;
  std::uint64_t joins = 0;
  Lengths lengths;      // lengths of the tensors; their meaning depends on the operation
  std::int64_t salt{};  // distinguishes the elements from those of other steps
};

struct Mixture {
  int ranks = 4;
  int steps = 100;
  std::int64_t scale = 1;    // factor of the lengths, which are up to a few thousand
  bool all_at_once = false;  // all ranks take part in every step
};

/// A program with every kind of operation, among random ranks, with any number and length of
/// tensors.
[[nodiscard]] std::vector<Step> random_program(const Mixture& mixture, std::uint64_t seed);

/// One rank's part of a step.
class Task {
 public:
  Task(const Step& step, int rank) : step_(step), rank_(rank) {}
  virtual ~Task() = default;

  [[nodiscard]] Batch batch() const;
  /// Whether the completed batch has the right result.
  [[nodiscard]] virtual testing::AssertionResult holds() = 0;

 protected:
  virtual void add_members(std::vector<const BatchTensor*>& members) const = 0;
  [[nodiscard]] const Step& step() const { return step_; }
  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int present() const { return static_cast<int>(step_.ranks.size()); }

 private:
  const Step& step_;
  int rank_;
};

[[nodiscard]] std::unique_ptr<Task> make_task(const Step& step, int rank);

}  // namespace kolo::internal::backend
