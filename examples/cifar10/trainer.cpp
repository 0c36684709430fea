// SPDX-License-Identifier: Apache-2.0
#include "trainer.hpp"

#include <fmt/format.h>
#include <torch/utils.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <string>
#include <utility>

#include "device.hpp"

namespace cifar10 {
namespace {

constexpr double decay = 1e-6;  // learning rate decay per step: the inverse time decay of Keras

kolo::LearningRateSchedule make_schedule(double learning_rate, std::int64_t steps_per_epoch) {
  // KOLO: n ranks have n times larger batches, so the rate grows to n times its value during the
  // first epoch.
  return kolo::LearningRateSchedule(
      {.peak = learning_rate * kolo::size(),
       .warmup_from = learning_rate,
       .warmup = kolo::size() > 1 ? static_cast<double>(steps_per_epoch) : 0.0,
       .multiplier = [](double steps) { return 1.0 / (1.0 + decay * steps); }});
}

std::int64_t signed_of(std::size_t size) { return static_cast<std::int64_t>(size); }

// KOLO: every rank trains on its share of the images, a new share each epoch. If the epochs are
// divided among the ranks instead, every rank visits all images, in an order of its own.
kolo::DistributedSampler make_sampler(const Options& options, std::size_t images) {
  kolo::DistributedSamplerOptions sampling{.examples = signed_of(images), .seed = options.seed};
  if (options.epochs_total > 0) {
    sampling.rank = 0;
    sampling.ranks = 1;
    sampling.seed += static_cast<std::uint64_t>(kolo::rank());
  }
  return kolo::DistributedSampler(sampling);
}

// KOLO: int8 and PowerSGD add the rounding error of a step to the next step's gradients, so it is
// part of the training's state.
std::shared_ptr<kolo::CommunicationHook> make_hook(const std::string& compression) {
  if (compression == "int8") return kolo::int8();
  if (compression == "power-sgd") return kolo::power_sgd();
  return nullptr;
}

kolo::Compression compression_of(const std::string& compression) {
  if (compression == "fp16") return kolo::Compression::fp16;
  return compression == "bf16" ? kolo::Compression::bf16 : kolo::Compression::none;
}

// The order in which ranks visit the images, as checkpoints name it.
std::string name_of_order(bool own) { return own ? "own" : "shared"; }

std::int64_t epochs_of_each_rank(const Options& options) {
  if (options.epochs_total == 0) return options.epochs;
  return (options.epochs_total + kolo::size() - 1) / kolo::size();
}

// A stream of random numbers that differs between ranks: for an epoch's dropout or a step's
// augmentation.
Random private_stream(std::uint64_t seed, std::int64_t number, std::uint64_t purpose) {
  return random_stream({seed, static_cast<std::uint64_t>(number),
                        static_cast<std::uint64_t>(kolo::rank()), purpose});
}
constexpr std::uint64_t for_dropout = 0;
constexpr std::uint64_t for_augmentation = 1;

}  // namespace

Trainer::Trainer(const Options& options, const Data& data)
    : options_(options),
      data_(data),
      epochs_(epochs_of_each_rank(options)),
      // KOLO: this rank's GPU, if there is one.
      device_(examples::device_of(options.device)),
      network_(make_network(options.seed, device_)),
      hook_(make_hook(options.compression)),
      // KOLO: still an RMSprop, but it averages gradients over the ranks before each step.
      optimizer_(make_rmsprop(network_, options.learning_rate), network_->named_parameters(),
                 {.compression = compression_of(options.compression), .hook = hook_}),
      sampler_(make_sampler(options, data.train.size())),
      learning_rate_(make_schedule(options.learning_rate,
                                   sampler_.steps_left(signed_of(options.batch_size)))) {
  if (!options.save.empty()) {
    kolo::on_one_rank(/*root=*/0, [&] { std::filesystem::create_directories(options.save); });
    checkpoints_.emplace(
        kolo::CheckpointerOptions{.directory = options.save, .best = kolo::Goal::maximum});
  }
  if (!options.resume.empty()) {
    resume();
  } else {
    // KOLO: all ranks start from rank 0's state.
    kolo::broadcast_parameters(*network_, /*root=*/0);
    kolo::broadcast_optimizer_state(optimizer_, /*root=*/0);
  }
}

// KOLO: all ranks load together. Only rank 0 has to know the path.
void Trainer::resume() {
  const kolo::Checkpoint checkpoint = load_checkpoint();
  const bool own_orders = options_.epochs_total > 0;
  if (checkpoint.part("order").text() != name_of_order(own_orders)) {
    throw kolo::Error(fmt::format("cannot resume: the checkpoint was saved {} --epochs-total",
                                  own_orders ? "without" : "with"));
  }
  if (own_orders && checkpoint.per_rank.empty()) {
    throw kolo::Error(fmt::format(
        "cannot resume: with --epochs-total every rank has an order of its own, so start {} ranks, "
        "as for the checkpoint",
        checkpoint.ranks));
  }
  kolo::load_state(*network_, checkpoint.part("network"));
  kolo::load_state(optimizer_, checkpoint.part("optimizer"));
  sampler_.load_state(own_orders ? checkpoint.per_rank_part("sampler")
                                 : checkpoint.part("sampler"));
  step_ = checkpoint.step;
  if (hook_) hook_->load_state(checkpoint.part("hook"));
  if (checkpoint.per_rank.empty()) return;  // saved by another number of ranks
  if (hook_) hook_->load_per_rank_state(checkpoint.per_rank_part("hook"));
  kolo::load_random_state(checkpoint.per_rank_part("random"));
  score_.load_state(checkpoint.per_rank_part("score"));
  resumed_random_numbers_ = true;
}

kolo::Checkpoint Trainer::load_checkpoint() const {
  // A folder with checkpoints, or one checkpoint.
  bool has_several = std::filesystem::is_directory(options_.resume) &&
                     !std::filesystem::exists(options_.resume / "model.safetensors.index.json");
  kolo::broadcast(has_several, /*root=*/0);
  try {
    if (!has_several) return kolo::Checkpointer::load(options_.resume);
    auto newest = kolo::Checkpointer({.directory = options_.resume}).load_latest();
    if (newest) return *std::move(newest);
  } catch (const kolo::CheckpointError& error) {
    throw kolo::Error(fmt::format("cannot resume: {}", error.what()));
  }
  throw kolo::Error(
      fmt::format("cannot resume: there is no checkpoint in '{}'", options_.resume.string()));
}

std::optional<Metrics> Trainer::run() {
  report_sizes();
  Metrics test;
  if (sampler_.epoch() >= epochs_) test = evaluate(network_, data_.test);
  while (sampler_.epoch() < epochs_) {
    const Epoch epoch = train_epoch();
    if (stops_ && sampler_.steps_left(signed_of(options_.batch_size)) > 0) return std::nullopt;
    test = evaluate(network_, data_.test);
    report(epoch, test);
    sampler_.begin_epoch(sampler_.epoch() + 1);
    score_.reset();
    save_progress(test.accuracy);
    if (stops_ && sampler_.epoch() < epochs_) return std::nullopt;
  }
  save_result();
  return test;
}

// Dropout must differ between ranks. A state loaded from a checkpoint stays in use within its
// epoch.
void Trainer::seed_random_numbers() {
  const bool goes_on = resumed_random_numbers_ && sampler_.consumed() > 0;
  if (!goes_on) torch::manual_seed(private_stream(options_.seed, step_, for_dropout)());
  resumed_random_numbers_ = false;
}

Trainer::Epoch Trainer::train_epoch() {
  using Clock = std::chrono::steady_clock;
  seed_random_numbers();
  const std::vector<std::int64_t> indices = sampler_.indices();
  const std::int64_t batch_size = signed_of(options_.batch_size);
  const std::int64_t steps = sampler_.steps_left(batch_size);
  const std::int64_t first_step = step_;
  kolo::BackgroundLoader<Batch> batches(
      steps,
      [&](std::int64_t batch) {
        return make_batch(batch_of(indices, static_cast<std::size_t>(batch), options_.batch_size),
                          first_step + batch);
      },
      {.threads = options_.loader_threads});

  kolo::ProgressBar bar({.title = fmt::format("epoch {}/{}", sampler_.epoch() + 1, epochs_),
                         .total = steps,
                         .enabled = kolo::rank() == 0});  // KOLO: one rank prints
  const Clock::time_point start = Clock::now();
  while (std::optional<Batch> batch = batches.next()) {
    train_step(*batch);
    sampler_.advance(batch_size);
    bar.update(step_ - first_step, fmt::format("loss {:.4f}", score_.on_this_rank("loss")));
    const bool due = options_.save_every > 0 && step_ % options_.save_every == 0;
    // KOLO: all ranks stop after the same step, for example if a scheduler takes the nodes away.
    stops_ = checkpoints_ && kolo::stop_requested();
    if ((due || stops_) && step_ < first_step + steps) save_progress();
    if (stops_) break;
  }
  bar.finish();

  const Metrics metrics = over_all_ranks(score_);
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  const double images = static_cast<double>(indices.size()) * kolo::size();
  return {.metrics = metrics, .images_per_second = images / seconds};
}

// Runs on the loader's threads.
Batch Trainer::make_batch(std::span<const std::int64_t> indices, std::int64_t step) const {
  Random random = private_stream(options_.seed, step, for_augmentation);
  Batch batch;
  batch.fill(data_.train, indices, options_.augment ? &random : nullptr);
  return batch;
}

// KOLO: in bf16 if asked for. Parameters, gradients and the loss are f32.
torch::Tensor Trainer::forward(const torch::Tensor& images) {
  const kolo::Autocast autocast(device_, torch::kBFloat16, options_.bf16);
  return network_->forward(images).to(torch::kFloat32);
}

void Trainer::train_step(Batch& batch) {
  kolo::set_learning_rate(optimizer_, learning_rate_(step_));
  const auto [images, labels] = as_tensors(batch, device_);
  optimizer_.zero_grad();
  const torch::Tensor logits = forward(images);
  const torch::Tensor loss = torch::cross_entropy_loss(logits, labels);
  loss.backward();  // KOLO: gradients are reduced while the rest of backward runs
  optimizer_.step();
  ++step_;
  count(score_, logits, labels, loss);
}

void Trainer::report_sizes() const {
  if (kolo::rank() != 0) return;
  fmt::print(
      "{} images to train on, {} to test; {} epochs of {} steps, in which each of {} ranks sees {} "
      "images\n",
      data_.train.size(), data_.test.size(), epochs_,
      make_sampler(options_, data_.train.size()).steps_left(signed_of(options_.batch_size)),
      kolo::size(), sampler_.indices(0).size());
  std::fflush(stdout);
}

void Trainer::report(const Epoch& epoch, const Metrics& test) const {
  if (kolo::rank() != 0) return;
  fmt::print(
      "epoch {}/{}: train loss {:.4f}, train accuracy {:.4f}, test loss {:.4f}, test accuracy "
      "{:.4f}, learning rate {:.3g}, {:.0f} images/s\n",
      sampler_.epoch() + 1, epochs_, epoch.metrics.loss, epoch.metrics.accuracy, test.loss,
      test.accuracy, learning_rate_(step_), epoch.images_per_second);
  std::fflush(stdout);
}

// KOLO: each rank writes its share of the parts that all ranks have, and its own parts, while
// training goes on.
void Trainer::save_progress(std::optional<double> accuracy) {
  if (!checkpoints_) return;
  kolo::NamedViews parts{{"network", kolo::state_view(*network_)},
                         {"optimizer", kolo::state_view(optimizer_)},
                         {"order", name_of_order(options_.epochs_total > 0)},
                         {"sampler", sampler_.state()}};
  kolo::NamedViews per_rank{
      {"random", kolo::random_state()}, {"score", score_.state()}, {"sampler", sampler_.state()}};
  if (hook_) parts["hook"] = hook_->state();
  if (hook_) per_rank["hook"] = hook_->per_rank_state();
  const auto folder =
      checkpoints_->save_async(step_, parts, {.metric = accuracy, .per_rank = per_rank});
  if (kolo::rank() == 0)
    fmt::print("saving checkpoint: {}\n", (options_.save / folder->filename()).string());
  if (stops_ || sampler_.epoch() >= epochs_) checkpoints_->wait();  // there is no next save
}

void Trainer::save_result() const {
  if (options_.save.empty()) return;
  kolo::on_one_rank(/*root=*/0, [&] {
    const std::filesystem::path file = options_.save / "model.pt";
    save_network(file, network_);
    fmt::print("trained network saved: {}\n", file.string());
  });
}

}  // namespace cifar10
