#include "trainer.hpp"

#include <fmt/format.h>
#include <torch/utils.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <filesystem>

#include "agreement.hpp"

namespace cifar10 {
namespace {

constexpr double decay = 1e-6;  // of the learning rate, per step: Keras' inverse time decay

kolo::LearningRateWarmup make_warmup(double learning_rate, std::size_t steps) {
  // KOLO: n ranks make batches n times as large, so each step may go n times as far, once the
  // first epoch is over.
  return kolo::LearningRateWarmup(
      {.from = learning_rate,
       .to = learning_rate * kolo::size(),
       .steps = kolo::size() > 1 ? static_cast<std::int64_t>(steps) : 0});
}

// Dropout and augmentation must differ between ranks; the order of the images must not.
Random private_stream(std::uint64_t seed, std::int64_t epoch) {
  return random_stream(
      {seed, static_cast<std::uint64_t>(epoch), static_cast<std::uint64_t>(kolo::rank())});
}

}  // namespace

Trainer::Trainer(const Options& options, const Data& data)
    : options_(options),
      data_(data),
      network_(make_network(options.seed)),
      // KOLO: still an RMSprop, but gradients are averaged over the ranks before each step.
      optimizer_(make_rmsprop(network_, options.learning_rate), network_->named_parameters()),
      // KOLO: every rank trains on its share of the images, another one in each epoch.
      sampler_({.examples = static_cast<std::int64_t>(data.train.size()), .seed = options.seed}),
      steps_per_epoch_(batch_count(data.train.size() / static_cast<std::size_t>(kolo::size()),
                                   options.batch_size)),
      warmup_(make_warmup(options.learning_rate, steps_per_epoch_)) {
  if (!options.resume.empty()) resume();
  // KOLO: everyone starts from rank 0's state, fresh or from a checkpoint.
  kolo::broadcast_parameters(*network_, /*root=*/0);
  kolo::broadcast_optimizer_state(optimizer_, /*root=*/0);

  if (!options.save.empty()) {
    on_rank_0([&] { std::filesystem::create_directories(options.save); });
  }
}

void Trainer::resume() {
  // KOLO: rank 0 alone needs the file.
  on_rank_0([&] { position_ = load_checkpoint(options_.resume, network_, optimizer_); });
  std::array<std::int64_t, 2> position = {position_.epochs, position_.steps};
  kolo::broadcast(position, /*root=*/0);
  position_ = {.epochs = position[0], .steps = position[1]};
}

double Trainer::run() {
  Metrics test;
  if (position_.epochs >= options_.epochs) test = evaluate(network_, data_.test);
  while (position_.epochs < options_.epochs) {
    const Epoch epoch = train_epoch();
    test = evaluate(network_, data_.test);
    report(epoch, test);
    save_progress();
  }
  if (!options_.save.empty()) {
    on_rank_0([&] { save_network(options_.save / "model.pt", network_); });
  }
  return test.accuracy;
}

Trainer::Epoch Trainer::train_epoch() {
  using Clock = std::chrono::steady_clock;
  const std::vector<std::int64_t> indices = sampler_.indices(position_.epochs);
  Random random = private_stream(options_.seed, position_.epochs);
  torch::manual_seed(random());

  kolo::ProgressBar bar({.title = fmt::format("epoch {}/{}", position_.epochs + 1, options_.epochs),
                         .total = static_cast<std::int64_t>(steps_per_epoch_),
                         .enabled = kolo::rank() == 0});  // KOLO: one rank speaks
  Score score;
  const Clock::time_point start = Clock::now();
  for (std::size_t step = 0; step < steps_per_epoch_; ++step) {
    batch_.fill(data_.train, batch_of(indices, step, options_.batch_size),
                options_.augment ? &random : nullptr);
    train_step(score);
    bar.update(static_cast<std::int64_t>(step) + 1, fmt::format("loss {:.4f}", score.loss()));
  }
  bar.finish();
  ++position_.epochs;

  const Metrics metrics = score.over_all_ranks();
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  const double images = static_cast<double>(indices.size()) * kolo::size();
  return {.metrics = metrics, .images_per_second = images / seconds};
}

void Trainer::train_step(Score& score) {
  kolo::set_learning_rate(optimizer_, learning_rate());
  const auto [images, labels] = as_tensors(batch_);
  optimizer_.zero_grad();
  const torch::Tensor logits = network_->forward(images);
  const torch::Tensor loss = torch::cross_entropy_loss(logits, labels);
  loss.backward();  // KOLO: gradients travel while the rest of backward still runs
  optimizer_.step();
  ++position_.steps;
  score.add(logits, labels, loss);
}

double Trainer::learning_rate() const {
  return warmup_(position_.steps) / (1.0 + decay * static_cast<double>(position_.steps));
}

void Trainer::report(const Epoch& epoch, const Metrics& test) const {
  if (kolo::rank() != 0) return;
  fmt::print(
      "epoch {}/{}: train loss {:.4f}, train accuracy {:.4f}, test accuracy {:.4f}, "
      "learning rate {:.3g}, {:.0f} images/s\n",
      position_.epochs, options_.epochs, epoch.metrics.loss, epoch.metrics.accuracy, test.accuracy,
      learning_rate(), epoch.images_per_second);
  std::fflush(stdout);
}

void Trainer::save_progress() {
  if (options_.save.empty()) return;
  // KOLO: one rank saves; all have the same state.
  on_rank_0(
      [&] { save_checkpoint(options_.save / "checkpoint.pt", network_, optimizer_, position_); });
}

}  // namespace cifar10
