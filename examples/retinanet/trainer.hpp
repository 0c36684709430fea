// SPDX-License-Identifier: Apache-2.0
// Training and evaluation on all ranks.
#pragma once

#include <kolo/torch.hpp>  // before LibTorch, as clang 14 needs it

#include <torch/optim/adamw.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "coco.hpp"
#include "network.hpp"
#include "options.hpp"

namespace retinanet {

/// All ranks create a trainer and run it, with the same options and data.
class Trainer {
 public:
  /// Options and data must outlive the trainer. Resumes from a checkpoint if there is one. Throws
  /// std::runtime_error if a rank has no image to train on. Collective.
  Trainer(const Options& options, const DataSet& train, const DataSet& val);

  /// Trains for the remaining epochs, evaluates, and writes images. Rank 0 prints.
  /// Collective.
  void run();

 private:
  struct Batch {
    std::vector<float> pixels;         // [n, 3, side, side]
    std::vector<std::int64_t> places;  // positions of the pictures in their data set
    std::vector<std::int64_t> labels;  // [n, anchors]
    std::vector<float> offsets;        // [n, anchors, 4]
    std::int64_t found = 0;            // anchors with a category
  };
  enum class Purpose : std::uint8_t { training, evaluation };

  [[nodiscard]] Batch load(const DataSet& data, const std::vector<std::int64_t>& places,
                           std::int64_t number, Purpose purpose) const;
  [[nodiscard]] torch::Tensor pixels_of(Batch& batch) const;
  void train_epoch();
  void train_step(Batch& batch, kolo::MetricAverage& losses);
  [[nodiscard]] std::vector<Detection> detect_in(const DataSet& data);
  double evaluate(bool is_last);
  void resume();
  void save(double precision);

  const Options& options_;
  const DataSet& train_;
  const DataSet& val_;
  torch::Device device_;
  std::vector<Box> anchors_;
  RetinaNet network_;
  kolo::DistributedOptimizer<torch::optim::AdamW> optimizer_;
  kolo::DistributedSampler sampler_;
  std::int64_t steps_per_epoch_;
  kolo::LearningRateSchedule learning_rate_;
  std::optional<kolo::Checkpointer> checkpoints_;
  std::int64_t step_ = 0;
};

}  // namespace retinanet
