// SPDX-License-Identifier: Apache-2.0
// One model and its optimizer on this rank: Kolo's custom optimizer or LibTorch's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kolo/communication_hook.hpp"
#include "kolo/process_set.hpp"
#include "kolo/sharded_optimizer.hpp"
#include "program.hpp"
#include "reference.hpp"

namespace kolo::internal::journeys {

/// One backward pass.
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
  /// Clips gradients; called after `synchronize`.
  virtual void clip(double max_norm) = 0;
  /// Discards the gradients of a step.
  virtual void discard() = 0;
  /// With a loss scale, gradients that are not finite skip the step.
  virtual void step(double learning_rate) = 0;
  /// Runs a backward pass that throws in a hook, on one rank or on all; false if there are no
  /// hooks.
  virtual bool throw_in_hook(const Event& event) = 0;
};

/// A loss scale of some of a rank's models.
class Scaler {
 public:
  virtual ~Scaler() = default;
  /// Updates the scale after the steps of all its models.
  virtual void update() = 0;
  [[nodiscard]] virtual std::string state() const = 0;
  virtual void load_state(const std::string& state) = 0;
};

struct TrainerArguments {
  const Program& program;
  Model model;
  std::size_t number;
  int rank;
  ProcessSet set;  // may lack this rank
  std::shared_ptr<CommunicationHook> hook{};
  std::shared_ptr<Scaler> scaler{};  // made by the same Maker
};

/// Makes trainers of one kind and their loss scales.
struct Maker {
  std::function<std::unique_ptr<Trainer>(const TrainerArguments&)> trainer;
  std::function<std::shared_ptr<Scaler>(const Program&)> scaler;
};

/// The options of its DistributedOptimizer.
[[nodiscard]] DistributedOptimizerOptions options_of(const TrainerArguments& arguments);
/// The options of its ShardedOptimizer, if it has one.
[[nodiscard]] Sharding sharding_of(const TrainerArguments& arguments);
/// The exact norm of all ranks' parts. Collective in the set.
[[nodiscard]] double joint_norm(std::span<const std::span<float>> parts,
                                const TrainerArguments& arguments);
/// Gathers the ranks' parts into `whole`, which contains this rank's part. Collective in the set.
void gather_parts(std::span<float> whole, const TrainerArguments& arguments);
[[nodiscard]] std::string name_of_parameter(const Program& program, std::size_t index);

/// The shape of a parameter: with `power_sgd`, some are matrices, since its hook compresses no
/// others.
[[nodiscard]] Shape shape_of_parameter(const Program& program, int size);
/// The hook of a model's optimizer; null if there is none.
[[nodiscard]] std::shared_ptr<CommunicationHook> make_hook(const Program& program);

[[nodiscard]] Maker plain_maker();

}  // namespace kolo::internal::journeys
