// SPDX-License-Identifier: Apache-2.0
// One model and its optimizer on this rank: of Kolo's own or LibTorch's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kolo/process_set.hpp"
#include "kolo/sharded_optimizer.hpp"
#include "program.hpp"
#include "reference.hpp"

namespace kolo::internal::journeys {

/// Which backward pass this is.
struct Pass {
  const Epoch& epoch;
  int step;
  int number;
  const std::vector<std::int64_t>& examples;
};

class Trainer {
 public:
  virtual ~Trainer() = default;

  virtual void set_state(const ModelState& state) = 0;
  [[nodiscard]] virtual ModelState state() const = 0;
  /// Copies the state of `root` to the ranks of the set.
  virtual void broadcast(int root) = 0;

  virtual void zero_gradients() = 0;
  virtual void backward(const Pass& pass) = 0;
  virtual void synchronize() = 0;
  /// After `synchronize`.
  virtual void clip(double max_norm) = 0;
  /// Gives up a step.
  virtual void discard() = 0;
  virtual void step(double learning_rate) = 0;
  /// A backward pass that throws in a hook, on one rank or all; false if there are no hooks.
  virtual bool throw_in_hook(const Event& event) = 0;
};

struct TrainerArguments {
  const Program& program;
  Model model;
  std::size_t number;
  int rank;
  ProcessSet set;  // this rank may be no member
};

using MakeTrainer = std::function<std::unique_ptr<Trainer>(const TrainerArguments&)>;

/// The options of its DistributedOptimizer.
[[nodiscard]] DistributedOptimizerOptions options_of(const TrainerArguments& arguments);
/// Of its ShardedOptimizer, if it has one.
[[nodiscard]] Sharding sharding_of(const TrainerArguments& arguments);
/// Collective in the set. The norm of all ranks' parts; exact.
[[nodiscard]] double joint_norm(std::span<const std::span<float>> parts,
                                const TrainerArguments& arguments);
/// Collective in the set. Gathers the ranks' parts of `whole`, of which this rank has its own.
void gather_parts(std::span<float> whole, const TrainerArguments& arguments);
[[nodiscard]] std::string name_of_parameter(const Program& program, std::size_t index);

[[nodiscard]] std::unique_ptr<Trainer> make_plain_trainer(const TrainerArguments& arguments);

}  // namespace kolo::internal::journeys
