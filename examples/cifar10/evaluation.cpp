#include "evaluation.hpp"

#include <torch/utils.h>

#include <algorithm>
#include <kolo/kolo.hpp>
#include <vector>

namespace cifar10 {

BatchTensors as_tensors(Batch& batch) {
  const auto images = static_cast<std::int64_t>(batch.labels.size());
  constexpr auto length = static_cast<std::int64_t>(side);
  constexpr auto depth = static_cast<std::int64_t>(channels);
  // Channels are innermost in memory, which oneDNN's convolutions like best; the shape is as usual.
  const auto pixels = torch::from_blob(batch.pixels.data(), {images, length, length, depth});
  return {.images = pixels.permute({0, 3, 1, 2}),
          .labels = torch::from_blob(batch.labels.data(), {images}, torch::kLong)};
}

void Score::add(const torch::Tensor& logits, const torch::Tensor& labels,
                const torch::Tensor& loss) {
  const auto images = static_cast<double>(labels.size(0));
  loss_sum_ += loss.item<double>() * images;
  correct_ += logits.argmax(1).eq(labels).sum().item<double>();
  images_ += images;
}

Metrics Score::over_all_ranks() const {
  // KOLO: each rank's means count by how many images it saw.
  const double images = std::max(images_, 1.0);
  const std::vector<double> means =
      kolo::average({loss_sum_ / images, correct_ / images}, /*weight=*/images_);
  return {.loss = means[0], .accuracy = means[1]};
}

Metrics evaluate(Network& network, const Dataset& dataset) {
  constexpr std::size_t batch_size = 100;
  // KOLO: this rank's share. Not `even`: no image may be left out.
  const kolo::DistributedSampler sampler(
      {.examples = static_cast<std::int64_t>(dataset.size()), .shuffle = false, .even = false});
  const std::vector<std::int64_t> indices = sampler.indices(0);

  const torch::NoGradGuard no_grad;
  network->eval();
  Batch batch;
  Score score;
  for (std::size_t i = 0; i < batch_count(indices.size(), batch_size); ++i) {
    batch.fill(dataset, batch_of(indices, i, batch_size));
    const auto [images, labels] = as_tensors(batch);
    const torch::Tensor logits = network->forward(images);
    score.add(logits, labels, torch::cross_entropy_loss(logits, labels));
  }
  network->train();
  return score.over_all_ranks();
}

}  // namespace cifar10
