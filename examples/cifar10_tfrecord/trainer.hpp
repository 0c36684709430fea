// SPDX-License-Identifier: Apache-2.0
// The training loop, with the changes that distribute a single-process program.
#pragma once

#include <kolo/torch.hpp>  // before LibTorch, as clang 14 needs it

#include <torch/optim/sgd.h>

#include <cstdint>
#include <optional>
#include <span>

#include "batch.hpp"
#include "dataset.hpp"
#include "evaluation.hpp"
#include "network.hpp"
#include "options.hpp"

namespace tfrecord {

struct Sets {
  cifar10::Dataset train, validation, eval;
};

/// The three folders of `--data`. Every rank reads all of them. Throws kolo::Error on every rank if
/// any rank cannot read them. Collective.
[[nodiscard]] Sets read_sets(const Options& options);

/// All ranks create a trainer and run it, with the same options.
class Trainer {
 public:
  /// Both references must outlive the trainer.
  Trainer(const Options& options, const Sets& sets);

  /// Trains, validates after each epoch, and evaluates at the end. Rank 0 prints.
  void run();

 private:
  [[nodiscard]] double learning_rate() const;
  [[nodiscard]] cifar10::Batch make_batch(std::span<const std::int64_t> indices,
                                          std::int64_t step) const;
  void train_epoch();
  void train_step(cifar10::Batch& batch);
  void validate(double images_per_second);
  void resume();
  void save(double loss);

  const Options& options_;
  const Sets& sets_;
  torch::Device device_;
  cifar10::Network network_;
  kolo::DistributedOptimizer<torch::optim::SGD> optimizer_;
  kolo::DistributedSampler sampler_;
  kolo::LearningRateWarmup warmup_;
  kolo::ReduceOnPlateau plateau_;
  std::optional<kolo::Checkpointer> checkpoints_;
  kolo::MetricAverage score_ = cifar10::make_score();
  std::int64_t step_ = 0;
};

}  // namespace tfrecord
