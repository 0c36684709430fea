// Training on all ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <kolo/torch.hpp>

#include "batch.hpp"
#include "checkpoint.hpp"
#include "dataset.hpp"
#include "evaluation.hpp"
#include "network.hpp"
#include "options.hpp"

namespace cifar10 {

/// Everything here is collective: all ranks make a trainer and run it, with the same options.
class Trainer {
 public:
  /// Both must outlive the trainer. Throws std::runtime_error on every rank if it cannot resume.
  Trainer(const Options& options, const Data& data);

  /// Trains, and tests after each epoch; rank 0 prints and saves. Returns the test accuracy.
  double run();

 private:
  struct Epoch {
    Metrics metrics;
    double images_per_second;  ///< Of all ranks together.
  };

  void resume();
  Epoch train_epoch();
  void train_step(Score& score);
  [[nodiscard]] double learning_rate() const;
  void report(const Epoch& epoch, const Metrics& test) const;
  void save_progress();

  const Options& options_;
  const Data& data_;
  Network network_;
  kolo::DistributedOptimizer<torch::optim::RMSprop> optimizer_;
  kolo::DistributedSampler sampler_;
  std::size_t steps_per_epoch_;
  kolo::LearningRateWarmup warmup_;
  Position position_;
  Batch batch_;
};

}  // namespace cifar10
