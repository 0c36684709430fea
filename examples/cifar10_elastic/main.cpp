// SPDX-License-Identifier: Apache-2.0
// Trains a small network on CIFAR-10 while ranks are lost and join:
//
//     kolorun -np 4 --min-np 2 cifar10_elastic --data-dir cifar-10-batches-bin
//
// Kill one of its processes: the others continue from the last commit, and kolorun starts another.
// The lines that make it elastic are marked KOLO.
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <torch/utils.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <kolo/torch.hpp>
#include <optional>
#include <span>
#include <vector>

#include "batch.hpp"
#include "evaluation.hpp"
#include "network.hpp"
#include "program.hpp"
#include "shared_options.hpp"
#include "stand_in.hpp"

namespace {

struct Options : cifar10::SharedOptions {
  double learning_rate = 1e-4;
  std::int64_t commit_every = 10;
  std::filesystem::path save;
};

bool parse(int argc, char** argv, Options& options) {
  CLI::App app("Trains a small network on CIFAR-10 while ranks are lost and join.",
               "cifar10_elastic");
  cifar10::add_shared_options(app, options);
  app.add_option("--learning-rate", options.learning_rate,
                 "Learning rate for one rank; multiplied by the number of ranks")
      ->capture_default_str();
  app.add_option("--commit-every", options.commit_every, "Steps between two commits")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  app.add_option("--save", options.save,
                 "Directory for checkpoints, which all hosts share: one after each epoch, and one "
                 "when SIGTERM stops the job. Training continues from the newest");
  return examples::parse(app, argc, argv);
}

// KOLO: without collectives, since a rank may load while the others train.
cifar10::Data load(const Options& options) {
  cifar10::Data data = options.data_dir.empty()
                           ? cifar10::make_stand_in(options.stand_in_size, options.seed)
                           : cifar10::read_cifar10(options.data_dir);
  if (options.limit != 0) data.train.keep_first(options.limit);
  return data;
}

class Trainer {
 public:
  Trainer(const Options& options, const cifar10::Data& data)
      : options_(options),
        data_(data),
        network_(cifar10::make_network(options.seed)),
        optimizer_(cifar10::make_rmsprop(network_, options.learning_rate),
                   network_->named_parameters()),
        sampler_({.examples = static_cast<std::int64_t>(data.train.size()),
                  .seed = options.seed,
                  .remainder = kolo::Remainder::uneven}) {
    // KOLO: the state that ranks commit, and functions for values that depend on the number of
    // ranks.
    state_.add("network", network_)
        .add("optimizer", optimizer_)
        .add("sampler", sampler_)
        .add("score", score_)
        .add("step", step_);
    state_.on_reset(
        [this] { kolo::set_learning_rate(optimizer_, options_.learning_rate * kolo::size()); });
    // KOLO: once for all sessions, so that saving goes on while ranks recover.
    if (!options.save.empty())
      checkpoints_.emplace(kolo::CheckpointerOptions{.directory = options.save});
  }

  void run() {
    // KOLO: called again whenever ranks were lost or join; continues from the newest commit.
    kolo::elastic::run(state_, [this] { train(); });
    if (stops_) return;
    const cifar10::Metrics test = cifar10::evaluate(network_, data_.test);
    if (kolo::rank() == 0)
      fmt::print("test loss: {:.4f}\ntest accuracy: {:.4f}\n", test.loss, test.accuracy);
  }

 private:
  void train() {
    if (checkpoints_ && state_.commits() == 1) load_progress();
    if (kolo::rank() == 0)
      fmt::print("{} ranks train from epoch {}, image {}\n", kolo::size(), sampler_.epoch() + 1,
                 sampler_.consumed());
    std::fflush(stdout);
    while (sampler_.epoch() < options_.epochs && !stops_) {
      train_rest_of_epoch();
      if (sampler_.steps_left(1) > 0) return;  // stopped within the epoch
      report();
      sampler_.begin_epoch(sampler_.epoch() + 1);
      score_.reset();
      state_.commit();  // KOLO
      save_progress();
    }
  }

  // KOLO: commits are in memory. If all ranks are lost, a new job begins with the last checkpoint.
  void load_progress() {
    if (const auto found = checkpoints_->load_latest()) {
      kolo::load_state(*network_, found->part("network"));
      kolo::load_state(optimizer_, found->part("optimizer"));
      sampler_.load_state(found->part("sampler"));
      step_ = found->step;
      kolo::set_learning_rate(optimizer_, options_.learning_rate * kolo::size());
      if (kolo::rank() == 0) fmt::print("loaded the checkpoint of step {}\n", step_);
    }
    state_.commit();  // number 2: the next session does not load again
  }

  // KOLO: the ranks write their shares of the files while training goes on.
  void save_progress() {
    if (!checkpoints_) return;
    checkpoints_->save_async(step_, {{"network", kolo::state_view(*network_)},
                                     {"optimizer", kolo::state_view(optimizer_)},
                                     {"sampler", sampler_.state()}});
    if (stops_ || sampler_.epoch() >= options_.epochs) checkpoints_->wait();  // the last one
  }

  void train_rest_of_epoch() {
    const auto batch_size = static_cast<std::int64_t>(options_.batch_size);
    const std::vector<std::int64_t> indices = sampler_.indices();  // KOLO: the rest of the epoch
    const std::int64_t steps = sampler_.steps_left(batch_size);
    for (std::int64_t step = 0; step < steps; ++step) {
      const auto first = std::min(indices.size(), static_cast<std::size_t>(step * batch_size));
      const auto count = std::min(indices.size() - first, options_.batch_size);
      train_step(std::span(indices).subspan(first, count));
      sampler_.advance(batch_size);
      ++step_;
      // KOLO: all ranks stop after the same step, for example if a scheduler takes the nodes away.
      stops_ = checkpoints_ && kolo::stop_requested();
      if (stops_ && step + 1 < steps) return save_progress();
      if ((step + 1) % options_.commit_every == 0 && step + 1 < steps) state_.commit();  // KOLO
    }
  }

  // KOLO: in the last step of an epoch a rank may have no images; it takes part with zeros.
  void train_step(std::span<const std::int64_t> indices) {
    optimizer_.zero_grad();
    if (!indices.empty()) {
      batch_.fill(data_.train, indices);
      const auto [images, labels] = cifar10::as_tensors(batch_);
      const torch::Tensor logits = network_->forward(images);
      const torch::Tensor loss = torch::cross_entropy_loss(logits, labels);
      loss.backward();
      cifar10::count(score_, logits, labels, loss);
    }
    optimizer_.step();
  }

  void report() {
    const cifar10::Metrics train = cifar10::over_all_ranks(score_);
    const cifar10::Metrics test = cifar10::evaluate(network_, data_.test);
    if (kolo::rank() != 0) return;
    fmt::print(
        "epoch {}/{}: train loss {:.4f}, train accuracy {:.4f}, test loss {:.4f}, test accuracy "
        "{:.4f}\n",
        sampler_.epoch() + 1, options_.epochs, train.loss, train.accuracy, test.loss,
        test.accuracy);
    std::fflush(stdout);
  }

  const Options& options_;
  const cifar10::Data& data_;
  cifar10::Network network_;
  kolo::DistributedOptimizer<torch::optim::RMSprop> optimizer_;
  kolo::DistributedSampler sampler_;
  kolo::MetricAverage score_ = cifar10::make_score();
  kolo::elastic::State state_{};
  std::optional<kolo::Checkpointer> checkpoints_{};  // none without --save
  std::int64_t step_ = 0;                            // since the start of training
  bool stops_ = false;
  cifar10::Batch batch_{};
};

}  // namespace

int main(int argc, char** argv) {
  examples::keep_freed_memory();
  Options options;
  cifar10::Data data;
  // KOLO: before the session. Once a new process has begun its session, the others wait for it.
  const auto prepare = [&] {
    if (!parse(argc, argv, options)) return false;
    at::set_num_threads(options.threads);
    data = load(options);
    return true;
  };
  return examples::run(argc, argv, prepare, [&] { Trainer(options, data).run(); });
}
