// SPDX-License-Identifier: Apache-2.0
// The reference: the same training in one process, without communication, with every rank's
// weights.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "program.hpp"

namespace kolo::internal::journeys {

/// A parameter and its optimizer's state.
struct Parameter {
  std::vector<float> values{};
  std::vector<float> velocities{};

  friend bool operator==(const Parameter&, const Parameter&) = default;
};

using ModelState = std::vector<Parameter>;
/// The models of one rank.
struct Replica {
  std::vector<ModelState> models{};
  /// The states of loss scales by `Model::scale`; may be empty.
  std::vector<std::string> scales{};

  friend bool operator==(const Replica&, const Replica&) = default;
};

/// A rank's own random weights.
[[nodiscard]] Replica random_replica(const Program& program, int rank, int session_ranks);

[[nodiscard]] std::string to_bytes(const Replica& replica);
void from_bytes(const std::string& bytes, Replica& replica);
[[nodiscard]] std::uint64_t checksum(const ModelState& state);

/// The place where a rank's backward computes a number that is not finite.
struct Overflow {
  std::size_t parameter;
  std::size_t element;
  int pass;
  float value;
};

/// The gradients of one backward pass: a number in {-1, 0, 1} for each example and use, which
/// depends on example and weight, times `gradient_bucket`.
class Gradients {
 public:
  Gradients(const Program& program, const Model& model, std::size_t number)
      : program_(program), model_(model), number_(number) {}

  /// Adds a parameter's gradient to `gradient`.
  void add(std::size_t parameter, std::span<const float> values,
           std::span<const std::int64_t> examples, std::span<float> gradient) const;
  /// False if backward does not reach the parameter in this step of this rank.
  [[nodiscard]] bool used(std::size_t parameter, const Epoch& epoch, int step, int rank) const;
  /// The overflow in this step; only with a loss scale.
  [[nodiscard]] std::optional<Overflow> overflow(const Epoch& epoch, int step, int rank) const;

 private:
  const Program& program_;
  const Model& model_;
  std::size_t number_;
};

/// SGD with momentum.
void apply(Parameter& parameter, std::span<const float> gradient, double learning_rate,
           double momentum);

[[nodiscard]] double norm_of(std::span<const std::span<float>> gradients);
/// Throws Unexpected if Kolo returned another norm. If one norm is not finite, both must be.
void require_norm(double norm, double wanted, double tolerance = 1e-9);
/// Scales gradients whose joint norm exceeds `max_norm`; exact for a norm below it.
void clip(std::span<const std::span<float>> gradients, double max_norm);
/// The same for parts of gradients whose joint norm is `norm`.
void clip(std::span<const std::span<float>> gradients, double max_norm, double norm);
[[nodiscard]] double max_norm_of(const Program& program);

class Reference {
 public:
  /// Starts with each set's first rank's weights, as after kolo::broadcast_parameters.
  Reference(const Program& program, int session_ranks, std::vector<Replica> replicas);

  void start();
  void run(const Epoch& epoch);
  [[nodiscard]] const Replica& of(int rank) const {
    return replicas_[static_cast<std::size_t>(rank)];
  }
  [[nodiscard]] const std::vector<Replica>& replicas() const { return replicas_; }
  void set_replicas(std::vector<Replica> replicas) { replicas_ = std::move(replicas); }
  [[nodiscard]] const std::vector<Model>& models() const { return models_; }

 private:
  using Tensors = std::vector<std::vector<float>>;

  void run_step(const Epoch& epoch, int step, std::size_t number);
  [[nodiscard]] Tensors local(const Epoch& epoch, int step, std::size_t number, int rank) const;
  void finish(Tensors& gradients, const std::vector<bool>& reached, const Epoch& epoch, int step,
              std::size_t number, int rank);
  [[nodiscard]] std::vector<bool> reached(const Epoch& epoch, int step, std::size_t number,
                                          const std::vector<int>& ranks) const;
  [[nodiscard]] bool overflows(const Epoch& epoch, int step, std::size_t number,
                               const std::vector<int>& ranks) const;
  /// The present ranks of the set to which a rank belongs.
  [[nodiscard]] std::vector<int> partners(const Epoch& epoch, int step, std::size_t number,
                                          int rank) const;
  void update_scales(const Epoch& epoch, int step);
  void copy_to_members(std::size_t number, const std::vector<int>& members, int root);

  const Program& program_;
  int session_ranks_;
  std::vector<Model> models_;
  std::vector<Replica> replicas_;  // by rank
};

/// True if an exception in forward makes all ranks skip this step.
[[nodiscard]] bool fails(const Program& program, const Epoch& epoch, int step);
/// The step of an event, before which no rank has joined.
[[nodiscard]] int step_of(const Event& event, const Epoch& epoch);

}  // namespace kolo::internal::journeys
