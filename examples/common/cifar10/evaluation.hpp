// How good the network is, counted on each rank and then over all.
#pragma once

#include <kolo/kolo.hpp>

#include "batch.hpp"
#include "dataset.hpp"
#include "network.hpp"

namespace cifar10 {

/// What a batch holds as the network takes it: images [n, 3, 32, 32] and labels [n]. On the CPU
/// these are views, without a copy: they live as long as the batch is not filled again.
struct BatchTensors {
  torch::Tensor images;
  torch::Tensor labels;
};
[[nodiscard]] BatchTensors as_tensors(Batch& batch, torch::Device device = torch::kCPU);

struct Metrics {
  double loss = 0.0;      ///< Mean cross-entropy of an image, natural logarithm.
  double accuracy = 0.0;  ///< Fraction of the images, 0 to 1.
};

/// What is counted of each batch.
[[nodiscard]] kolo::MetricAverage make_score();

/// Counts a batch; `loss` is the mean over it.
void count(kolo::MetricAverage& score, const torch::Tensor& logits, const torch::Tensor& labels,
           const torch::Tensor& loss);

/// Over the images of all ranks. Collective.
[[nodiscard]] Metrics over_all_ranks(const kolo::MetricAverage& score);

/// Tests the network where its parameters are; each rank takes its share of the images, each image
/// once. Collective.
[[nodiscard]] Metrics evaluate(Network& network, const Dataset& dataset);

}  // namespace cifar10
