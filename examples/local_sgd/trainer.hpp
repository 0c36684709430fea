// SPDX-License-Identifier: Apache-2.0
// Training with one of the three algorithms.
#pragma once

#include <cstdint>
#include <kolo/torch.hpp>

// After kolo/torch.hpp, as clang 14 needs it.
#include <torch/optim/sgd.h>

#include "dataset.hpp"
#include "evaluation.hpp"
#include "network.hpp"
#include "options.hpp"
#include "outer.hpp"

namespace local_sgd {

/// All functions are collective: all ranks create a trainer and run it, with the same options.
class Trainer {
 public:
  /// Both references must outlive the trainer.
  Trainer(const Options& options, const cifar10::Data& data);

  /// Trains and tests after each epoch; rank 0 prints. Returns the test accuracy.
  double run();

 private:
  void train_epoch();
  void train_step(cifar10::Batch& batch);
  void report(const cifar10::Metrics& test, double seconds) const;
  [[nodiscard]] bool averages() const { return options_.algorithm == Algorithm::average; }

  const Options& options_;
  const cifar10::Data& data_;
  cifar10::Network network_;
  kolo::DistributedOptimizer<torch::optim::SGD> optimizer_;
  OuterOptimizer outer_;
  kolo::DistributedSampler sampler_;
  kolo::LearningRateSchedule learning_rate_;
  kolo::MetricAverage score_ = cifar10::make_score();
  std::int64_t step_ = 0;
  std::int64_t sent_ = 0;  // bytes that this rank has contributed to averages
};

}  // namespace local_sgd
