// SPDX-License-Identifier: Apache-2.0
#include "trainer.hpp"

#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/pooling.h>
#include <torch/utils.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <utility>

#include "image_file.hpp"

namespace xray {
namespace {

namespace nn = torch::nn;

// Halves the image four times, then averages over the remaining pixels.
nn::Sequential make_network(torch::Device device, std::uint64_t seed) {
  torch::manual_seed(seed);
  nn::Sequential network;
  std::int64_t in = 1;
  for (const int out : {16, 32, 64, 64}) {
    network->push_back(nn::Conv2d(nn::Conv2dOptions(in, out, 3).padding(1).bias(false)));
    network->push_back(nn::BatchNorm2d(out));
    network->push_back(nn::ReLU(nn::ReLUOptions(true)));
    network->push_back(nn::MaxPool2d(2));
    in = out;
  }
  network->push_back(nn::AdaptiveAvgPool2d(1));
  network->push_back(nn::Flatten());
  network->push_back(nn::Dropout(0.3));
  network->push_back(nn::Linear(in, 2));
  network->to(device);
  return network;
}

std::int64_t batches_of(std::size_t images, std::size_t batch_size) {
  return static_cast<std::int64_t>((images + batch_size - 1) / batch_size);
}

// Each rank visits all images in its own order for a share of the epochs, so all ranks together see
// as many images as one rank would alone.
kolo::DistributedSampler make_sampler(const Options& options, std::size_t images, int rank) {
  return kolo::DistributedSampler({.examples = static_cast<std::int64_t>(images),
                                   .rank = 0,
                                   .ranks = 1,
                                   .seed = options.seed + static_cast<std::uint64_t>(rank)});
}

kolo::LearningRateWarmup make_warmup(const Options& options, std::size_t images, int ranks) {
  // KOLO: n ranks have n times larger batches, so the learning rate is n times higher.
  const auto steps = static_cast<double>(batches_of(images, options.batch_size));
  return kolo::LearningRateWarmup(
      {.from = options.learning_rate,
       .to = options.learning_rate * ranks,
       .steps = ranks > 1 ? static_cast<std::int64_t>(options.warmup_epochs * steps) : 0});
}

void mirror(std::uint8_t* pixels, std::size_t side) {
  for (std::size_t y = 0; y < side; ++y) std::reverse(pixels + y * side, pixels + (y + 1) * side);
}

}  // namespace

Trainer::Trainer(const Options& options, const Split& files, kolo::ProcessSet set)
    : options_(options),
      files_(files),
      set_(std::move(set)),
      device_(kolo::local_device()),  // KOLO: this rank's GPU, if there is one
      class_weights_(torch::tensor(class_weights(files.train), torch::kFloat).to(device_)),
      network_(make_network(device_, options.seed)),
      // KOLO: gradients are averaged over the ranks of the set.
      optimizer_(torch::optim::Adam(network_->parameters(), options.learning_rate),
                 network_->named_parameters(), {.process_set = set_}),
      sampler_(make_sampler(options, files.train.size(), set_.rank())),
      learning_rate_(make_warmup(options, files.train.size(), set_.size())) {
  // KOLO: all ranks start from rank 0's parameters.
  kolo::broadcast_parameters(*network_, /*root=*/0, set_);
}

// Runs on the loader's threads.
Trainer::Batch Trainer::load(const std::vector<LabeledFile>& files,
                             const std::vector<std::int64_t>& indices, std::int64_t number,
                             bool augmented) const {
  const std::size_t first = static_cast<std::size_t>(number) * options_.batch_size;
  const std::size_t end = std::min(first + options_.batch_size, indices.size());
  Batch batch;
  for (std::size_t i = first; i < end; ++i) {
    const LabeledFile& file = files[static_cast<std::size_t>(indices[i])];
    examples::Image image =
        resized(examples::read_image(file.path), options_.image_size, options_.image_size);
    // Mirrors every other image, and the other half of the images in the next epoch.
    const bool mirrored = augmented && (indices[i] + sampler_.epoch()) % 2 == 0;
    if (mirrored) mirror(image.pixels.data(), options_.image_size);
    for (const std::uint8_t pixel : image.pixels) {
      batch.pixels.push_back((static_cast<float>(pixel) - 127.5F) / 64.0F);
    }
    batch.labels.push_back(file.label);
  }
  return batch;
}

Trainer::Tensors Trainer::tensors_of(Batch& batch) const {
  const auto images = static_cast<std::int64_t>(batch.labels.size());
  const auto side = static_cast<std::int64_t>(options_.image_size);
  return {.images = torch::from_blob(batch.pixels.data(), {images, 1, side, side}).to(device_),
          .labels = torch::from_blob(batch.labels.data(), {images}, torch::kLong).to(device_)};
}

torch::Tensor Trainer::loss_of(const torch::Tensor& logits, const torch::Tensor& labels) {
  return torch::cross_entropy_loss(logits, labels, class_weights_);
}

void Trainer::train_epoch(int epoch) {
  sampler_.begin_epoch(epoch);
  const std::vector<std::int64_t> indices = sampler_.indices();
  kolo::BackgroundLoader<Batch> batches(
      batches_of(indices.size(), options_.batch_size),
      [&](std::int64_t number) { return load(files_.train, indices, number, true); },
      {.threads = options_.loader_threads});
  while (auto batch = batches.next()) {
    kolo::set_learning_rate(optimizer_, learning_rate_(step_++));
    const auto [images, labels] = tensors_of(*batch);
    optimizer_.zero_grad();
    loss_of(network_->forward(images), labels).backward();
    optimizer_.step();
  }
}

Quality Trainer::validate() {
  // KOLO: each rank has its own normalization statistics so far; evaluation uses rank 0's.
  kolo::broadcast_parameters(network_->named_buffers(), /*root=*/0, set_);
  // KOLO: this rank's share; `uneven`, because every image must count exactly once.
  const kolo::DistributedSampler sampler(
      {.examples = static_cast<std::int64_t>(files_.validation.size()),
       .rank = set_.rank(),
       .ranks = set_.size(),
       .shuffle = false,
       .remainder = kolo::Remainder::uneven});
  const std::vector<std::int64_t> indices = sampler.indices();
  kolo::BackgroundLoader<Batch> batches(
      batches_of(indices.size(), options_.batch_size),
      [&](std::int64_t number) { return load(files_.validation, indices, number, false); },
      {.threads = options_.loader_threads});

  const torch::NoGradGuard no_grad;
  network_->eval();
  kolo::MetricAverage score({"loss", "accuracy"});
  Scored scored;
  while (auto batch = batches.next()) {
    const auto [images, labels] = tensors_of(*batch);
    const torch::Tensor logits = network_->forward(images);
    const auto count = static_cast<double>(labels.size(0));
    score.add("loss", loss_of(logits, labels).item<double>(),
              class_weights_.index_select(0, labels).sum().item<double>());
    score.add("accuracy", logits.argmax(1).eq(labels).sum().item<double>() / count, count);
    const torch::Tensor scores = (logits.select(1, 1) - logits.select(1, 0)).cpu();
    const float* data = scores.data_ptr<float>();
    scored.scores.insert(scored.scores.end(), data, data + scores.numel());
    scored.labels.insert(scored.labels.end(), batch->labels.begin(), batch->labels.end());
  }
  network_->train();
  const auto means = score.over_all_ranks(set_);
  return {.loss = means.at("loss"),
          .accuracy = means.at("accuracy"),
          .area = area_over_ranks(scored, set_)};
}

Outcome Trainer::run() {
  using Clock = std::chrono::steady_clock;
  const int ranks = set_.size();
  const int epochs = (options_.epochs_total + ranks - 1) / ranks;
  // Dropout must differ between ranks.
  torch::manual_seed(options_.seed + static_cast<std::uint64_t>(set_.rank()));
  // KOLO: all ranks stop in the same epoch.
  kolo::EarlyStopping stopping({.patience = options_.patience, .process_set = set_});
  Outcome outcome{.ranks = ranks};
  kolo::StateDict best;
  const Clock::time_point start = Clock::now();
  double training = 0.0;
  while (outcome.epochs < epochs && !stopping.stopped()) {
    const Clock::time_point epoch_start = Clock::now();
    train_epoch(outcome.epochs++);
    training += std::chrono::duration<double>(Clock::now() - epoch_start).count();
    const Quality quality = validate();
    stopping.update(quality.loss);
    if (stopping.improved()) {
      outcome.best = quality;
      best = kolo::state(*network_);
    }
    if (set_.rank() != 0) continue;
    std::printf("epoch %d/%d: validation loss %.4f, accuracy %.4f, AUC %.4f%s\n", outcome.epochs,
                epochs, quality.loss, quality.accuracy, quality.area,
                stopping.stopped() ? ", stopped" : "");
    std::fflush(stdout);
  }
  if (!best.empty()) kolo::load_state(*network_, best);
  outcome.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  const auto images = static_cast<double>(files_.train.size());
  outcome.images_per_second = images * outcome.epochs * ranks / training;
  return outcome;
}

}  // namespace xray
