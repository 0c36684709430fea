// SPDX-License-Identifier: Apache-2.0
// Training on the ranks of a process set: all ranks, or one alone.
#pragma once

#include <kolo/torch.hpp>  // before LibTorch, as clang 14 needs it

#include <torch/nn/modules/container/sequential.h>
#include <torch/optim/adam.h>

#include <cstdint>
#include <string>
#include <vector>

#include "image_folder.hpp"
#include "options.hpp"
#include "roc.hpp"

namespace xray {

struct Quality {
  double loss = 0.0;      ///< Cross-entropy; both classes count equally.
  double accuracy = 0.0;  ///< Fraction of the images.
  double area = 0.0;      ///< Area under the ROC curve; see roc.hpp.
};

struct Outcome {
  int ranks = 0;
  int epochs = 0;                  ///< Epochs per rank; fewer than requested after early stopping.
  double seconds = 0.0;            ///< For training and validation.
  double images_per_second = 0.0;  ///< Training images of all ranks.
  Quality best{};                  ///< Quality in the epoch with the lowest validation loss.
};

/// All members of the set create a trainer and run it, with the same options and files.
class Trainer {
 public:
  /// Options and files must outlive the trainer.
  Trainer(const Options& options, const Split& files, kolo::ProcessSet set = {});

  /// Trains until the epochs are over or the loss stops improving. The set's first rank prints.
  Outcome run();

 private:
  struct Batch {
    std::vector<float> pixels;  // [n, 1, side, side], around 0
    std::vector<std::int64_t> labels;
  };
  struct Tensors {
    torch::Tensor images, labels;
  };

  [[nodiscard]] Batch load(const std::vector<LabeledFile>& files,
                           const std::vector<std::int64_t>& indices, std::int64_t number,
                           bool augmented) const;
  [[nodiscard]] Tensors tensors_of(Batch& batch) const;
  [[nodiscard]] torch::Tensor loss_of(const torch::Tensor& logits, const torch::Tensor& labels);
  void train_epoch(int epoch);
  [[nodiscard]] Quality validate();

  const Options& options_;
  const Split& files_;
  kolo::ProcessSet set_;
  torch::Device device_;
  torch::Tensor class_weights_;
  torch::nn::Sequential network_;
  kolo::DistributedOptimizer<torch::optim::Adam> optimizer_;
  kolo::DistributedSampler sampler_;
  kolo::LearningRateWarmup learning_rate_;
  std::int64_t step_ = 0;
};

}  // namespace xray
