// SPDX-License-Identifier: Apache-2.0
// AdamW (Loshchilov and Hutter, 2019, https://arxiv.org/abs/1711.05101) on contiguous memory.
#pragma once

#include <cstdint>
#include <kolo/kolo.hpp>
#include <span>
#include <vector>

#include "layout.hpp"

namespace gpt {

struct AdamWOptions {
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0.1;  // of matrices only
};

/// KOLO: kolo::DistributedOptimizer requires only `gradients` and `step` of an optimizer.
class AdamW {
 public:
  /// Parameters start as zeros. Requires an open session, because of the shared memory.
  explicit AdamW(const Layout& layout, const AdamWOptions& options = {});

  [[nodiscard]] std::span<float> parameters() { return parameters_; }
  [[nodiscard]] std::span<float> gradient_memory() { return gradients_; }

  /// One tensor per piece of the layout.
  [[nodiscard]] std::vector<kolo::NamedTensor> gradients();
  void step();

  void set_learning_rate(double rate) { learning_rate_ = rate; }
  void clear_gradients();

  /// Scales the gradients if their joint norm exceeds `max_norm`. Returns the norm before scaling.
  double clip(double max_norm);

  /// Save and restore the state for a checkpoint. `load` throws kolo::Error for the bytes of
  /// another network.
  [[nodiscard]] kolo::Blobs state() const;
  void load(const kolo::Checkpoint& checkpoint);

 private:
  AdamWOptions options_;
  std::vector<Piece> pieces_;
  double learning_rate_ = 0.0;
  std::int64_t steps_ = 0;
  std::vector<float> parameters_;
  kolo::SharedVector<float> gradients_;  // KOLO: reduced in place, without a copy
  std::vector<float> first_moments_, second_moments_;
  std::vector<float> decay_;  // per parameter: 1 if weight decay applies, else 0
};

}  // namespace gpt
