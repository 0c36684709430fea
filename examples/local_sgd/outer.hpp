// SPDX-License-Identifier: Apache-2.0
// The common step of all ranks, after several steps that each rank made alone.
#pragma once

// clang 14 can read LibTorch 1.13 in C++20 only if this comes first.
#include <ATen/core/ivalue.h>

#include <torch/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace local_sgd {

/// SGD with Nesterov momentum whose gradient is the distance that the ranks have moved, on average,
/// since the last step. With rate 1 and momentum 0 the result is the average of the ranks'
/// parameters.
///
/// Stich, 2019, https://arxiv.org/abs/1805.09767 (local SGD); Douillard et al., 2023,
/// https://arxiv.org/abs/2311.08105 (DiLoCo).
class OuterOptimizer {
 public:
  /// The parameters must be equal on all ranks.
  OuterOptimizer(const std::vector<torch::Tensor>& parameters, double rate, double momentum);

  /// Collective. The parameters are equal on all ranks afterwards, bit for bit.
  void step();

  /// The velocity and the parameters as of the last step, for checkpoints and elastic training.
  /// `load_state` throws c10::Error for bytes that `state` has not returned.
  [[nodiscard]] std::string state() const;
  void load_state(const std::string& bytes);

  /// Bytes that a rank contributes to a step.
  [[nodiscard]] std::int64_t bytes() const;

 private:
  // This rank's parameters, updated in place by its inner optimizer.
  std::vector<torch::Tensor> parameters_;
  // The parameters as of the last outer step, equal on all ranks.
  std::vector<torch::Tensor> common_;
  std::vector<torch::Tensor> velocity_;
  double rate_;
  double momentum_;
};

}  // namespace local_sgd
