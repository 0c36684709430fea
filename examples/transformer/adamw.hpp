// SPDX-License-Identifier: Apache-2.0
// AdamW (Loshchilov and Hutter, 2019, https://arxiv.org/abs/1711.05101) on contiguous memory.
#pragma once

#include <cstdint>
#include <kolo/kolo.hpp>
#include <span>
#include <string>
#include <vector>

#include "layout.hpp"

namespace gpt {

struct AdamWOptions {
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0.1;  // applied to matrices only
};

/// KOLO: kolo::DistributedOptimizer requires only `gradients` and `step` of an optimizer.
/// kolo::ShardedOptimizer requires `parameters` and a `step` of shards, too.
class AdamW {
 public:
  /// Parameters start as zeros. Requires an open session, because of the shared memory.
  explicit AdamW(const Layout& layout, const AdamWOptions& options = {});
  /// KOLO: updates the shards of a ShardedModel, in whose memory they are.
  AdamW(const Layout& layout, const kolo::ShardedModel& model, const AdamWOptions& options = {});

  [[nodiscard]] std::span<float> parameter_memory() { return parameters_; }
  [[nodiscard]] std::span<float> gradient_memory() { return gradients_; }

  /// Named tensors, one per piece of the layout.
  [[nodiscard]] std::vector<kolo::NamedTensor> gradients();
  [[nodiscard]] std::vector<kolo::NamedTensor> parameters();

  /// Allocates moments for these shards only. Call it before the first step.
  void make_state(std::span<const kolo::Shard> shards);
  /// All elements of all pieces, for an optimizer that is not sharded.
  [[nodiscard]] std::vector<kolo::Shard> whole() const;

  /// Updates the shards that have state.
  void step(std::span<const kolo::Shard> shards);
  void step();

  void set_learning_rate(double rate) { learning_rate_ = rate; }
  void clear_gradients();

  /// The whole state for a checkpoint, on rank 0; nothing on other ranks. Collective.
  [[nodiscard]] kolo::NamedStates state() const;
  /// Restores the parameters, and the moments of this rank's shards, however the state was sharded
  /// when it was saved. Throws kolo::Error for the bytes of another network; nothing has changed
  /// then.
  void load(const kolo::Checkpoint& checkpoint);

 private:
  /// A shard that has state, and its values.
  struct Place {
    kolo::Shard shard;
    std::span<float> parameters;
    std::span<const float> gradients;
  };

  [[nodiscard]] Range range_of(const kolo::Shard& shard) const;
  void make_state();
  void update(const Place& place, std::size_t at);
  [[nodiscard]] std::string gather(std::span<const float> values) const;
  [[nodiscard]] std::string gather_parameters() const;
  void load_shards(const std::string& bytes, std::vector<float>& values) const;

  AdamWOptions options_;
  std::size_t size_;  // elements of all pieces
  std::vector<Piece> pieces_;
  std::vector<Range> matrices_;
  double learning_rate_ = 0.0;
  std::int64_t steps_ = 0;
  std::vector<float> parameters_;        // empty with a ShardedModel, like the gradients
  kolo::SharedVector<float> gradients_;  // KOLO: reduced in place, without a copy

  // Values for each element of the shards, one shard after another.
  std::vector<Place> places_{};
  std::vector<float> first_moments_{}, second_moments_{};
  std::vector<float> decay_{};  // 1 if weight decay applies, else 0
};

}  // namespace gpt
