// SPDX-License-Identifier: Apache-2.0
// What the ranks of a recorded run did in each step: computing, waiting for others, reducing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "run.hpp"
#include "spans.hpp"

namespace diagnose {

struct RankActivity {
  int rank = 0;
  std::string host{};
  // The text of a span names an operation.
  std::vector<Span> computing{};  // the time in which the rank does not wait
  std::vector<Span> waiting{};
  std::vector<Span> reducing{};  // operations are executed, whether the rank waits or not
  // By step, in nanoseconds: for how long the others waited for this rank, with the operation for
  // which they waited longest.
  std::vector<std::int64_t> lateness{};
  std::int64_t dropped = 0;  // spans that its timeline lacks
};

/// The rank that was late on average of all steps.
struct LateRank {
  int rank = 0;
  std::int64_t by = 0;    // per step, in nanoseconds
  std::int64_t step = 0;  // mean length of a step
};

struct Activity {
  std::vector<Span> steps{};  // in order; one begins where the one before ends
  std::size_t first_step = 1;
  std::size_t all_steps = 1;          // of the run, counted from 1
  std::string step_name{};            // the operation with which steps begin; "": none recurs
  std::vector<RankActivity> ranks{};  // by rank
  bool is_cut_off = false;  // operations of the last step have failed, or were pending at the end
  std::optional<LateRank> late_rank{};  // if it is late by a tenth of a step at least
};

/// Some steps of a run, counted from 1. 0: the last ones, up to ten.
struct StepRange {
  std::size_t first = 0;
  std::size_t last = 0;
};

/// The index of the rank that was late in this step by a tenth of it at least.
[[nodiscard]] std::optional<std::size_t> late_in(const Activity& activity, std::size_t step);

/// The activity of all ranks, on the clock of the first one. Throws std::runtime_error for steps
/// that the run does not have, and for runs without operations.
[[nodiscard]] Activity find_activity(std::vector<RankRun> runs, const StepRange& range);

}  // namespace diagnose
