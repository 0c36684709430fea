// SPDX-License-Identifier: Apache-2.0
#include "trainer.hpp"

#include <torch/utils.h>

#include <chrono>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "images.hpp"
#include "program.hpp"
#include "random.hpp"

namespace tfrecord {
namespace {

std::int64_t signed_of(std::size_t size) { return static_cast<std::int64_t>(size); }

torch::optim::SGD make_sgd(const cifar10::Network& network, const Options& options) {
  return torch::optim::SGD(network->parameters(), torch::optim::SGDOptions(options.learning_rate)
                                                      .momentum(options.momentum)
                                                      .weight_decay(options.weight_decay));
}

void print_metrics(const char* set, const cifar10::Metrics& metrics) {
  std::printf("%s loss    : %.4f\n%s accuracy: %.4f\n", set, metrics.loss, set, metrics.accuracy);
}

}  // namespace

Sets read_sets(const Options& options) {
  Sets sets;
  kolo::on_every_rank([&] {
    sets.train = read_images(options.data / "train");
    sets.validation = read_images(options.data / "validation");
    sets.eval = read_images(options.data / "eval");
    if (sets.train.size() < static_cast<std::size_t>(kolo::size())) {
      throw std::runtime_error(std::to_string(sets.train.size()) + " images cannot be shared by " +
                               std::to_string(kolo::size()) + " ranks");
    }
  });
  examples::check_same_sizes({signed_of(sets.train.size()), signed_of(sets.validation.size()),
                              signed_of(sets.eval.size())});
  return sets;
}

Trainer::Trainer(const Options& options, const Sets& sets)
    : options_(options),
      sets_(sets),
      device_(kolo::local_device()),  // KOLO, change 3: this rank's GPU, if there is one
      network_(cifar10::make_network(options.seed, device_)),
      // KOLO, change 6: the optimizer averages gradients over the ranks.
      optimizer_(make_sgd(network_, options), network_->named_parameters()),
      // KOLO, change 8: the steps of an epoch are divided by the number of ranks.
      sampler_({.examples = signed_of(sets.train.size()), .seed = options.seed}),
      // KOLO, change 4: the learning rate is scaled by the number of ranks ...
      warmup_({.from = options.learning_rate,
               .to = options.learning_rate * kolo::size(),
               .steps = static_cast<std::int64_t>(
                   options.warmup_epochs *
                   static_cast<double>(sampler_.steps_left(signed_of(options.batch_size))))}),
      // ... and drops when the validation loss of all ranks stops improving.
      plateau_(
          {.learning_rate = options.learning_rate * kolo::size(), .patience = options.patience}) {
  if (!options.checkpoints.empty())
    checkpoints_.emplace(kolo::CheckpointerOptions{options.checkpoints});
  resume();
  // KOLO, change 7: all ranks start from rank 0's state.
  kolo::broadcast_parameters(*network_, /*root=*/0);
  kolo::broadcast_optimizer_state(optimizer_, /*root=*/0);
}

void Trainer::resume() {
  const auto found = checkpoints_ ? checkpoints_->load_latest() : std::nullopt;
  if (!found) return;
  kolo::from_bytes(found->part("network"), *network_);
  kolo::from_bytes(found->part("optimizer"), optimizer_);
  sampler_.load(found->part("sampler"));
  plateau_.load(found->part("plateau"));
  step_ = found->step;
}

// KOLO, change 7: rank 0 alone writes.
void Trainer::save(double loss) {
  if (!checkpoints_) return;
  kolo::Blobs parts;
  if (kolo::rank() == 0) {
    parts = {{"network", kolo::to_bytes(*network_)},
             {"optimizer", kolo::to_bytes(optimizer_)},
             {"sampler", sampler_.state()},
             {"plateau", plateau_.state()}};
  }
  checkpoints_->save(step_, parts, {.metric = loss});
}

double Trainer::learning_rate() const {
  const double reduced = plateau_.learning_rate() / (options_.learning_rate * kolo::size());
  return warmup_(step_) * reduced;
}

// Runs on the loader's threads.
cifar10::Batch Trainer::make_batch(std::span<const std::int64_t> indices, std::int64_t step) const {
  cifar10::Random random = cifar10::random_stream(
      {options_.seed, static_cast<std::uint64_t>(step), static_cast<std::uint64_t>(kolo::rank())});
  cifar10::Batch batch;
  batch.fill(sets_.train, indices, &random, cifar10::draw_pad_crop_flip);
  return batch;
}

void Trainer::train_step(cifar10::Batch& batch) {
  kolo::set_learning_rate(optimizer_, learning_rate());
  const auto [images, labels] = cifar10::as_tensors(batch, device_);
  optimizer_.zero_grad();
  const torch::Tensor logits = network_->forward(images);
  const torch::Tensor loss = torch::cross_entropy_loss(logits, labels);
  loss.backward();
  optimizer_.step();
  ++step_;
  cifar10::count(score_, logits, labels, loss);
}

void Trainer::train_epoch() {
  using Clock = std::chrono::steady_clock;
  // Dropout must differ between ranks.
  torch::manual_seed(options_.seed +
                     static_cast<std::uint64_t>(step_ * kolo::size() + kolo::rank()));
  const std::vector<std::int64_t> indices = sampler_.indices();
  const std::int64_t first_step = step_;
  kolo::BackgroundLoader<cifar10::Batch> batches(
      sampler_.steps_left(signed_of(options_.batch_size)),
      [&](std::int64_t number) {
        const auto batch = static_cast<std::size_t>(number);
        return make_batch(cifar10::batch_of(indices, batch, options_.batch_size),
                          first_step + number);
      },
      {.threads = options_.loader_threads});
  const Clock::time_point start = Clock::now();
  while (auto batch = batches.next()) train_step(*batch);
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  sampler_.begin_epoch(sampler_.epoch() + 1);
  validate(static_cast<double>(indices.size()) * kolo::size() / seconds);
  score_.reset();
}

void Trainer::validate(double images_per_second) {
  // KOLO, change 7: metrics are averaged over the ranks.
  const cifar10::Metrics train = cifar10::over_all_ranks(score_);
  const cifar10::Metrics validation = cifar10::evaluate(network_, sets_.validation);
  if (kolo::rank() == 0) {
    std::printf(
        "epoch %lld/%lld: loss %.4f, accuracy %.4f, validation loss %.4f, validation accuracy "
        "%.4f, "
        "learning rate %.3g, %.0f images/s\n",
        static_cast<long long>(sampler_.epoch()), static_cast<long long>(options_.epochs),
        train.loss, train.accuracy, validation.loss, validation.accuracy, learning_rate(),
        images_per_second);
    std::fflush(stdout);
  }
  plateau_.update(validation.loss);
  save(validation.loss);
}

void Trainer::run() {
  while (sampler_.epoch() < options_.epochs) train_epoch();
  const cifar10::Metrics test = cifar10::evaluate(network_, sets_.eval);
  if (kolo::rank() == 0) print_metrics("Test", test);
}

}  // namespace tfrecord
