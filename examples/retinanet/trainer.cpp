// SPDX-License-Identifier: Apache-2.0
#include "trainer.hpp"

#include <fmt/format.h>
#include <torch/utils.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <span>
#include <stdexcept>
#include <utility>

#include "anchors.hpp"
#include "gathering.hpp"
#include "results.hpp"
#include "sample.hpp"

namespace retinanet {
namespace {

std::int64_t signed_of(std::size_t size) { return static_cast<std::int64_t>(size); }

RetinaNet make_network(const Options& options, std::size_t categories, torch::Device device) {
  torch::manual_seed(options.seed);
  RetinaNet network(NetworkOptions{.backbone = options.backbone,
                                   .channels = options.channels,
                                   .head_layers = options.head_layers,
                                   .categories = signed_of(categories),
                                   .pretrained = !options.backbone_weights.empty()});
  network->to(device);
  return network;
}

kolo::LearningRateSchedule make_schedule(const Options& options, std::int64_t steps) {
  // KOLO: the rate is proportional to the images that all ranks see in a step.
  const double pictures = static_cast<double>(options.batch_size) * kolo::size();
  const double peak = options.learning_rate * pictures / 16;
  return kolo::LearningRateSchedule(
      {.peak = peak,
       .warmup_from = peak / 10,
       .warmup = options.warmup_epochs,
       .steps_per_epoch = steps,
       .milestones = {{options.epochs * 2 / 3.0, 0.1}, {options.epochs * 8 / 9.0, 0.1}}});
}

std::int64_t batches_of(std::size_t pictures, std::size_t batch_size) {
  return signed_of((pictures + batch_size - 1) / batch_size);
}

std::span<const float> values_of(const torch::Tensor& tensor) {
  return {tensor.data_ptr<float>(), static_cast<std::size_t>(tensor.numel())};
}

}  // namespace

Trainer::Trainer(const Options& options, const DataSet& train, const DataSet& val)
    : options_(options),
      train_(train),
      val_(val),
      device_(kolo::local_device()),  // KOLO: this rank's GPU, if there is one
      anchors_(make_anchors(options.image_size, options.anchor_size)),
      network_(make_network(options, train.categories.size(), device_)),
      // KOLO: gradients are averaged over the ranks before each step.
      optimizer_(
          torch::optim::AdamW(network_->parameters(),
                              torch::optim::AdamWOptions(options.learning_rate).weight_decay(1e-4)),
          network_->named_parameters()),
      // KOLO: every rank trains on its share of the images, a new share each epoch.
      sampler_({.examples = signed_of(train.pictures.size()), .seed = options.seed}),
      steps_per_epoch_(sampler_.steps_left(signed_of(options.batch_size))),
      learning_rate_(make_schedule(options, std::max<std::int64_t>(steps_per_epoch_, 1))) {
  if (steps_per_epoch_ == 0) {
    throw std::runtime_error(fmt::format("{} pictures to train on are too few for {} ranks",
                                         train.pictures.size(), kolo::size()));
  }
  if (!options.save.empty()) {
    checkpoints_.emplace(
        kolo::CheckpointerOptions{.directory = options.save, .best = kolo::Goal::maximum});
  }
  resume();
}

// KOLO: all ranks load together. No part belongs to one rank, so any number of ranks can resume.
void Trainer::resume() {
  if (const auto found = checkpoints_ ? checkpoints_->load_latest() : std::nullopt) {
    kolo::load_state(*network_, found->part("network"));
    kolo::load_state(optimizer_, found->part("optimizer"));
    sampler_.load_state(found->part("sampler"));
    step_ = found->step;
    return;
  }
  // KOLO: only rank 0 needs the file with a backbone's weights.
  if (!options_.backbone_weights.empty()) {
    kolo::on_one_rank(/*root=*/0, [&] { network_->load_backbone(options_.backbone_weights); });
  }
  // KOLO: all ranks start from rank 0's parameters and buffers.
  kolo::broadcast_parameters(*network_, /*root=*/0);
}

void Trainer::save(double precision) {
  if (!checkpoints_) return;
  checkpoints_->save(step_,
                     {{"network", kolo::state_view(*network_)},
                      {"optimizer", kolo::state_view(optimizer_)},
                      {"sampler", sampler_.state()}},
                     {.metric = precision});
}

// Runs on the loader's threads.
Trainer::Batch Trainer::load(const DataSet& data, const std::vector<std::int64_t>& places,
                             std::int64_t number, Purpose purpose) const {
  const std::size_t first = static_cast<std::size_t>(number) * options_.batch_size;
  const std::size_t end = std::min(first + options_.batch_size, places.size());
  const auto append = [](auto& to, const auto& from) {
    to.insert(to.end(), from.begin(), from.end());
  };
  Batch batch;
  for (std::size_t i = first; i < end; ++i) {
    const bool is_training = purpose == Purpose::training;
    // Mirrors every other image, and the other half of the images in the next epoch.
    const bool mirrored = is_training && options_.mirror && (places[i] + sampler_.epoch()) % 2 == 1;
    const Picture& picture = data.pictures[static_cast<std::size_t>(places[i])];
    const Sample sample = make_sample(picture, options_.image_size, mirrored);
    batch.places.push_back(places[i]);
    append(batch.pixels, sample.pixels);
    if (!is_training) continue;
    const Targets targets = match(anchors_, sample.objects);
    append(batch.labels, targets.labels);
    append(batch.offsets, targets.offsets);
    batch.found += targets.found;
  }
  return batch;
}

torch::Tensor Trainer::pixels_of(Batch& batch) const {
  const std::int64_t side = signed_of(options_.image_size);
  return torch::from_blob(batch.pixels.data(), {signed_of(batch.places.size()), 3, side, side})
      .to(device_);
}

void Trainer::train_step(Batch& batch, kolo::MetricAverage& losses) {
  kolo::set_learning_rate(optimizer_, learning_rate_(step_++));
  // KOLO: losses are normalized by the number of anchors with an object over all ranks, so that
  // every anchor counts equally on any number of ranks. The sum is reduced while the network runs.
  auto found = kolo::allreduce_async(std::vector<double>{static_cast<double>(batch.found)});
  const std::int64_t pictures = signed_of(batch.places.size());
  const std::int64_t anchors = signed_of(anchors_.size());
  const Outputs outputs = network_->forward(pixels_of(batch));
  const torch::Tensor labels =
      torch::from_blob(batch.labels.data(), {pictures, anchors}, torch::kLong).to(device_);
  const torch::Tensor wanted =
      torch::from_blob(batch.offsets.data(), {pictures, anchors, 4}).to(device_);
  const double divisor = std::max(found.get()[0], 1.0 / kolo::size());
  const torch::Tensor classes = focal_loss(outputs.logits, labels) / divisor;
  const torch::Tensor boxes = box_loss(outputs.offsets, wanted, labels) / divisor;
  optimizer_.zero_grad();
  (classes + boxes).backward();  // KOLO: gradients are reduced while the rest of backward runs
  kolo::clip_grad_norm(optimizer_, 10.0);
  optimizer_.step();
  losses.add("classes", classes.item<double>());
  losses.add("boxes", boxes.item<double>());
}

void Trainer::train_epoch() {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  const std::vector<std::int64_t> places = sampler_.indices();
  kolo::MetricAverage losses({"classes", "boxes"});
  kolo::BackgroundLoader<Batch> batches(
      steps_per_epoch_,
      [&](std::int64_t number) { return load(train_, places, number, Purpose::training); },
      {.threads = options_.loader_threads});
  while (auto batch = batches.next()) train_step(*batch, losses);
  sampler_.begin_epoch(sampler_.epoch() + 1);

  const auto means = losses.over_all_ranks();  // KOLO: over the images of all ranks
  if (kolo::rank() != 0) return;
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  fmt::print("epoch {}/{}: loss {:.4f} (classes {:.4f}, boxes {:.4f}), {:.1f} pictures/s\n",
             sampler_.epoch(), options_.epochs, means.at("classes") + means.at("boxes"),
             means.at("classes"), means.at("boxes"),
             static_cast<double>(places.size()) * kolo::size() / seconds);
  std::fflush(stdout);
}

// Detections in this rank's share of the images.
std::vector<Detection> Trainer::detect_in(const DataSet& data) {
  const torch::NoGradGuard no_grad;
  const std::vector<std::int64_t> places = share_of(data.pictures.size());
  kolo::BackgroundLoader<Batch> batches(
      batches_of(places.size(), options_.batch_size),
      [&](std::int64_t number) { return load(data, places, number, Purpose::evaluation); },
      {.threads = options_.loader_threads});
  std::vector<Detection> all;
  while (auto batch = batches.next()) {
    const Outputs outputs = network_->forward(pixels_of(*batch));
    const torch::Tensor logits = outputs.logits.cpu(), offsets = outputs.offsets.cpu();
    for (std::size_t i = 0; i < batch->places.size(); ++i) {
      const Picture& picture = data.pictures[static_cast<std::size_t>(batch->places[i])];
      const std::vector<Detection> found =
          detect(batch->places[i], anchors_, values_of(logits[signed_of(i)]),
                 values_of(offsets[signed_of(i)]), fit_of(picture, options_.image_size));
      all.insert(all.end(), found.begin(), found.end());
    }
  }
  return all;
}

// Returns the precision of the last part, equal on all ranks.
double Trainer::evaluate(bool is_last) {
  double precision = 0.0;
  for (const std::string& part : options_.parts_to_evaluate()) {
    const DataSet& data = part == "train" ? train_ : val_;
    const std::vector<Detection> found = gather(detect_in(data));
    const AveragePrecision precisions = average_precision(truths_of(data), found);
    precision = precisions.all;
    if (kolo::rank() == 0) print(part, data.pictures.size(), precisions);
    if (!is_last || options_.pictures.empty()) continue;
    kolo::on_one_rank(/*root=*/0, [&] {
      draw_results(options_.pictures, part, data, found, options_.pictures_count,
                   options_.min_score);
    });
  }
  return precision;
}

void Trainer::run() {
  const bool is_trained = sampler_.epoch() >= options_.epochs;
  while (sampler_.epoch() < options_.epochs) {
    train_epoch();
    const bool is_last = sampler_.epoch() == options_.epochs;
    const int every = options_.evaluate_every;
    if (is_last || (every > 0 && sampler_.epoch() % every == 0)) save(evaluate(is_last));
  }
  if (is_trained) (void)evaluate(/*is_last=*/true);
}

}  // namespace retinanet
