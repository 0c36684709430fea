// SPDX-License-Identifier: Apache-2.0
#include "trainer.hpp"

#include <torch/utils.h>

#include <chrono>
#include <cstdio>
#include <optional>

namespace local_sgd {
namespace {

cifar10::Network equal_network(const Options& options) {
  cifar10::Network network = cifar10::make_network(options.seed);
  kolo::broadcast_parameters(*network, /*root=*/0);                                 // KOLO
  torch::manual_seed(options.seed + 1 + static_cast<std::uint64_t>(kolo::rank()));  // dropout
  return network;
}

OuterOptimizer make_outer(const cifar10::Network& network, const Options& options) {
  const bool is_diloco = options.algorithm == Algorithm::diloco;
  return {network->parameters(), is_diloco ? options.outer_rate : 1.0,
          is_diloco ? options.outer_momentum : 0.0};
}

// KOLO: a cosine, with a twentieth of all steps as warm-up.
kolo::LearningRateSchedule schedule(const Options& options, std::int64_t steps) {
  const double warmup = static_cast<double>(steps) / 20.0;
  return kolo::LearningRateSchedule({.peak = options.learning_rate,
                                     .warmup = warmup,
                                     .cosine = static_cast<double>(steps) - warmup});
}

}  // namespace

Trainer::Trainer(const Options& options, const cifar10::Data& data)
    : options_(options),
      data_(data),
      network_(equal_network(options)),
      optimizer_(torch::optim::SGD(
                     network_->parameters(),
                     torch::optim::SGDOptions(options.learning_rate).momentum(options.momentum)),
                 network_->named_parameters()),
      outer_(make_outer(network_, options)),
      sampler_({.examples = static_cast<std::int64_t>(data.train.size()), .seed = options.seed}),
      learning_rate_(schedule(
          options,
          options.epochs * sampler_.steps_left(static_cast<std::int64_t>(options.batch_size)))) {}

double Trainer::run() {
  using Clock = std::chrono::steady_clock;
  // KOLO: gradients stay on this rank while the guard exists. The algorithm `average` has no guard.
  std::optional<kolo::NoSync> local;
  if (!averages()) local.emplace(optimizer_.no_sync());
  cifar10::Metrics test;
  while (sampler_.epoch() < options_.epochs) {
    const Clock::time_point start = Clock::now();
    train_epoch();
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    test = cifar10::evaluate(network_, data_.test);
    report(test, seconds);
    sampler_.begin_epoch(sampler_.epoch() + 1);
  }
  return test.accuracy;
}

void Trainer::train_epoch() {
  const std::vector<std::int64_t> indices = sampler_.indices();
  const std::int64_t steps = sampler_.steps_left(static_cast<std::int64_t>(options_.batch_size));
  score_.reset();
  cifar10::Batch batch;
  for (std::int64_t i = 0; i < steps; ++i) {
    batch.fill(data_.train,
               cifar10::batch_of(indices, static_cast<std::size_t>(i), options_.batch_size));
    train_step(batch);
    // An outer step also ends each epoch, so that all ranks test the same network.
    if (averages() || (step_ % options_.interval != 0 && i + 1 < steps)) continue;
    outer_.step();
    sent_ += outer_.bytes();
  }
}

void Trainer::train_step(cifar10::Batch& batch) {
  kolo::set_learning_rate(optimizer_, learning_rate_(step_));
  const auto [images, labels] = cifar10::as_tensors(batch);
  optimizer_.zero_grad();
  const torch::Tensor logits = network_->forward(images);
  const torch::Tensor loss = torch::cross_entropy_loss(logits, labels);
  loss.backward();
  if (averages()) {
    optimizer_.step();
    sent_ += outer_.bytes();  // gradients have as many bytes as parameters
  } else {
    optimizer_.SGD::step();  // KOLO: LibTorch's own, which does not wait for other ranks
  }
  ++step_;
  cifar10::count(score_, logits, labels, loss);
}

void Trainer::report(const cifar10::Metrics& test, double seconds) const {
  const cifar10::Metrics train = cifar10::over_all_ranks(score_);
  if (kolo::rank() != 0) return;
  std::printf(
      "epoch %lld: train loss %.4f, test loss %.4f, test accuracy %.4f, %.1f s, %lld bytes per "
      "step\n",
      static_cast<long long>(sampler_.epoch() + 1), train.loss, test.loss, test.accuracy, seconds,
      static_cast<long long>(sent_ / step_));
  std::fflush(stdout);
}

}  // namespace local_sgd
