// SPDX-License-Identifier: Apache-2.0
// A random training program. Every rank derives the same program from the seed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "features.hpp"
#include "kolo/collectives.hpp"
#include "kolo/optimizer.hpp"
#include "kolo/training/loss_scale.hpp"

namespace kolo::internal::journeys {

/// Gradients are multiples of this, so that means over up to 4 ranks and 3 passes are integers.
inline constexpr float gradient_bucket = 144.0F;

/// One model with its optimizer.
struct Model {
  std::vector<int> sizes{};              // elements of each parameter
  std::vector<bool> frozen{};            // by parameter
  std::vector<bool> sometimes_unused{};  // by parameter
  std::vector<bool> shared{};            // by parameter: used twice in forward
  std::vector<std::vector<int>> sets{};  // disjoint; a rank in none of them steps alone
  bool whole_world = true;               // `sets` has only the world
  ReduceOp op = ReduceOp::average;
  Accumulation accumulation = Accumulation::sum;
  Compression compression = Compression::none;
  double predivide = 1.0;
  int num_groups = 0;
  std::vector<std::vector<int>> groups{};  // by parameter
  double momentum = 0.0;
  int passes_per_step = 1;  // the optimizer's option
  std::size_t scale = 0;    // models with the same number here share a loss scale
};

/// Single events during an epoch, before one of its steps.
enum class Incident : std::uint8_t {
  mismatch,
  wrong_argument,
  forward_exception,
  fork,
  pending_future,
  callback_exception,  // ends the session
  departure,           // ends the session
  hook_exception,
  stopped,
  many_names,
  set_churn,
};

struct Event {
  Incident incident = Incident::mismatch;
  int epoch = 0;
  int step = 0;  // among the steps that all ranks take
  int odd = 0;   // the deviating rank
  std::uint64_t variant = 0;

  [[nodiscard]] bool ends_session() const {
    return incident == Incident::callback_exception || incident == Incident::departure;
  }
};

/// Limits that make a program smaller.
struct Limits {
  Features without{};
  Features with{};  // in addition to those drawn
  std::optional<Features> only{};
  int epochs = 1000;
  int steps = 1000;
  bool kill = false;  // with the feature `killed`
};

struct Program {
  std::uint64_t seed = 0;
  int ranks = 1;
  Features features{};
  bool torch = false;
  int epochs = 1;
  int max_steps = 1;
  int passes = 1;       // backward passes per step
  int last_passes = 1;  // passes in a partial window
  int batch = 1;
  int examples = 0;  // number of the sampler's examples
  int fewer = 1;     // ranks after fewer_ranks, or before more_ranks
  // Epoch before which the session changes: resume, fewer_ranks, more_ranks, reopened.
  int change_epoch = 0;
  int rollback_epoch = 0;  // rollback happens after it
  std::vector<Event> events{};

  [[nodiscard]] bool has(Feature feature) const { return features.has(feature); }
  /// Gradients are rounded, so the reference cannot follow.
  [[nodiscard]] bool is_lossy() const { return has(Feature::int8) || has(Feature::power_sgd); }
  /// Backward runs for all models before the first optimizer's step.
  [[nodiscard]] bool steps_together() const { return seed % 2 == 0; }
  /// The number of ranks before or after the change of the session.
  [[nodiscard]] int session_ranks(bool changed) const {
    return has(changed ? Feature::fewer_ranks : Feature::more_ranks) ? fewer : ranks;
  }
  /// The models in a session of `session_ranks` ranks.
  [[nodiscard]] std::vector<Model> models(int session_ranks) const;
};

[[nodiscard]] Program make_program(std::uint64_t seed, int ranks, bool torch, const Limits& limits);

[[nodiscard]] LossScaleOptions scale_options(const Program& program);

/// Describes the program.
[[nodiscard]] std::string to_string(const Program& program);

/// The steps of a program's ranks in one epoch. `branch` counts rollbacks, because the data differ
/// after each.
class Epoch {
 public:
  Epoch(const Program& program, int session_ranks, int epoch, int branch);

  [[nodiscard]] int number() const { return epoch_; }
  [[nodiscard]] int steps(int rank) const { return steps_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] int most_steps() const;
  [[nodiscard]] int fewest_steps() const;
  /// The first rank with the most steps.
  [[nodiscard]] int last_rank(const std::vector<int>& members) const;
  /// The number of passes of a rank that takes this step.
  [[nodiscard]] int passes(int step, int rank, Accumulation accumulation) const;
  [[nodiscard]] std::vector<std::int64_t> examples(int step, int pass, int rank) const;
  [[nodiscard]] bool skipped(int step) const;
  [[nodiscard]] double learning_rate(int step) const;
  /// True if the sampler's shares do not cover each example once.
  [[nodiscard]] bool loses_examples() const;

 private:
  const Program& program_;
  int epoch_;
  int branch_;
  std::vector<std::vector<std::int64_t>> shares_{};  // by rank; without sampler empty
  std::vector<int> steps_{};                         // by rank
};

/// A number that ranks sum: the metric of a rank in an epoch or step.
[[nodiscard]] double metric_of(const Program& program, int epoch, int step, int rank);

}  // namespace kolo::internal::journeys
