// SPDX-License-Identifier: Apache-2.0
// Training on all ranks, which can stop at any step and resume.
#pragma once

#include <cstdint>
#include <kolo/torch.hpp>
#include <memory>
#include <optional>
#include <string>

#include "batch.hpp"
#include "dataset.hpp"
#include "evaluation.hpp"
#include "network.hpp"
#include "options.hpp"

namespace cifar10 {

/// All functions are collective: all ranks create a trainer and run it, with the same options.
class Trainer {
 public:
  /// Both references must outlive the trainer. Throws kolo::Error on every rank if it cannot
  /// resume.
  Trainer(const Options& options, const Data& data);

  /// Trains and tests after each epoch; rank 0 prints and saves. Returns the last test's metrics;
  /// none if a signal has ended the training, which can resume.
  std::optional<Metrics> run();

 private:
  struct Epoch {
    Metrics metrics;
    double images_per_second;  ///< Total of all ranks.
  };

  void resume();
  [[nodiscard]] kolo::Checkpoint load_checkpoint() const;
  void seed_random_numbers();
  Epoch train_epoch();
  [[nodiscard]] torch::Tensor forward(const torch::Tensor& images);
  void train_step(Batch& batch);
  [[nodiscard]] Batch make_batch(std::span<const std::int64_t> indices, std::int64_t step) const;
  void report_sizes() const;
  void report(const Epoch& epoch, const Metrics& test) const;
  void save_progress(std::optional<double> accuracy = {});
  void save_result() const;

  const Options& options_;
  const Data& data_;
  std::int64_t epochs_;  ///< Per rank.
  torch::Device device_;
  Network network_;
  std::shared_ptr<kolo::CommunicationHook> hook_;  ///< Null unless a hook compresses gradients.
  kolo::DistributedOptimizer<torch::optim::RMSprop> optimizer_;
  kolo::DistributedSampler sampler_;  ///< Also tracks the epoch and the progress in it.
  kolo::LearningRateSchedule learning_rate_;
  std::optional<kolo::Checkpointer> checkpoints_;
  kolo::MetricAverage score_ = make_score();  ///< Metrics of this epoch so far.
  std::int64_t step_ = 0;                     ///< Counted from the start of training.
  bool resumed_random_numbers_ = false;
  bool stops_ = false;  ///< Saved after a signal.
};

}  // namespace cifar10
