// SPDX-License-Identifier: Apache-2.0
// Two networks that train against each other, each with its own optimizer.
#pragma once

#include <cstdint>
#include <kolo/torch.hpp>

// After kolo/torch.hpp, as clang 14 needs it.
#include <torch/nn/modules/container/sequential.h>
#include <torch/optim/adam.h>

#include "dataset.hpp"
#include "options.hpp"

namespace gan {

/// All functions are collective: all ranks create a trainer and run it, with the same options.
class Trainer {
 public:
  /// Both references must outlive the trainer.
  Trainer(const Options& options, const cifar10::Dataset& images);

  /// Rank 0 prints both losses after each epoch, and writes samples.
  void run();

 private:
  void train_step(const torch::Tensor& real);
  [[nodiscard]] torch::Tensor draw_noise(std::int64_t images) const;
  void report(double seconds) const;
  void save_samples();

  const Options& options_;
  const cifar10::Dataset& images_;
  torch::nn::Sequential generator_;
  torch::nn::Sequential discriminator_;
  kolo::DistributedOptimizer<torch::optim::Adam> generator_optimizer_;
  kolo::DistributedOptimizer<torch::optim::Adam> discriminator_optimizer_;
  kolo::DistributedSampler sampler_;
  kolo::MetricAverage losses_{{"generator", "discriminator"}};
};

}  // namespace gan
