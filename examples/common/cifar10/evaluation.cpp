// SPDX-License-Identifier: Apache-2.0
#include "evaluation.hpp"

#include <torch/utils.h>

#include <kolo/kolo.hpp>
#include <vector>

namespace cifar10 {

kolo::MetricAverage make_score() { return kolo::MetricAverage({"loss", "accuracy"}); }

void count(kolo::MetricAverage& score, const torch::Tensor& logits, const torch::Tensor& labels,
           const torch::Tensor& loss) {
  const auto images = static_cast<double>(labels.size(0));
  score.add("loss", loss.item<double>(), images);
  score.add("accuracy", logits.argmax(1).eq(labels).sum().item<double>() / images, images);
}

Metrics over_all_ranks(const kolo::MetricAverage& score) {
  // KOLO: each rank's means are weighted by its number of images.
  const auto means = score.over_all_ranks();
  return {.loss = means.at("loss"), .accuracy = means.at("accuracy")};
}

Metrics evaluate(Network& network, const Dataset& dataset) {
  constexpr std::size_t batch_size = 100;
  // KOLO: this rank's share; `uneven`, because every image must count exactly once.
  const kolo::DistributedSampler sampler({.examples = static_cast<std::int64_t>(dataset.size()),
                                          .shuffle = false,
                                          .remainder = kolo::Remainder::uneven});
  const std::vector<std::int64_t> indices = sampler.indices(0);

  const torch::NoGradGuard no_grad;
  network->eval();
  const torch::Device device = network->parameters().front().device();
  Batch batch;
  kolo::MetricAverage score = make_score();
  for (std::size_t i = 0; i < batch_count(indices.size(), batch_size); ++i) {
    batch.fill(dataset, batch_of(indices, i, batch_size));
    const auto [images, labels] = as_tensors(batch, device);
    const torch::Tensor logits = network->forward(images);
    count(score, logits, labels, torch::cross_entropy_loss(logits, labels));
  }
  network->train();
  return over_all_ranks(score);
}

}  // namespace cifar10
