// SPDX-License-Identifier: Apache-2.0
// Trains a small convolutional network on CIFAR-10 in TFRecord files, in one process:
//
//     cifar10_tfrecord_single --data cifar-10-tfrecords
#include <ATen/core/ivalue.h>  // first, as clang 14 needs it

#include <ATen/Parallel.h>
#include <torch/cuda.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "batch.hpp"
#include "images.hpp"
#include "network.hpp"
#include "options.hpp"
#include "program.hpp"
#include "random.hpp"

namespace {

using cifar10::Batch, cifar10::Dataset, tfrecord::Options;
using Indices = std::vector<std::int64_t>;

struct Sets {
  Dataset train, validation, eval;
};

Sets read_sets(const Options& options) {
  return {.train = tfrecord::read_images(options.data / "train"),
          .validation = tfrecord::read_images(options.data / "validation"),
          .eval = tfrecord::read_images(options.data / "eval")};
}

torch::optim::SGD make_sgd(const cifar10::Network& network, const Options& options) {
  return torch::optim::SGD(network->parameters(), torch::optim::SGDOptions(options.learning_rate)
                                                      .momentum(options.momentum)
                                                      .weight_decay(options.weight_decay));
}

Indices all_of(const Dataset& images) {
  Indices indices(images.size());
  std::iota(indices.begin(), indices.end(), 0);
  return indices;
}

struct Metrics {
  double loss, accuracy;
};

// Sums over images: the loss, the number of right answers, and the number of images.
using Sums = std::vector<double>;

Metrics means_of(Sums sums) { return {.loss = sums[0] / sums[2], .accuracy = sums[1] / sums[2]}; }

class Trainer {
 public:
  Trainer(const Options& options, const Sets& sets)
      : options_(options),
        sets_(sets),
        device_(torch::cuda::is_available() ? torch::kCUDA : torch::kCPU),
        network_(cifar10::make_network(options.seed, device_)),
        optimizer_(make_sgd(network_, options)) {
    if (!options.checkpoints.empty()) std::filesystem::create_directories(options.checkpoints);
  }

  void run() {
    while (epoch_ < options_.epochs) {
      const Metrics train = train_epoch();
      const Metrics validation = evaluate(sets_.validation);
      report(train, validation);
      save();
    }
    const Metrics test = evaluate(sets_.eval);
    std::printf("Test loss    : %.4f\nTest accuracy: %.4f\n", test.loss, test.accuracy);
  }

 private:
  [[nodiscard]] double learning_rate() const { return options_.learning_rate; }

  [[nodiscard]] Indices shuffled() const {
    Indices indices = all_of(sets_.train);
    cifar10::Random random = cifar10::random_stream({options_.seed, step_});
    std::shuffle(indices.begin(), indices.end(), random);
    return indices;
  }

  Metrics train_epoch() {
    using Clock = std::chrono::steady_clock;
    const Clock::time_point start = Clock::now();
    torch::manual_seed(options_.seed + step_);  // for dropout
    const Indices indices = shuffled();
    Sums sums(3);
    for (std::size_t i = 0; i < cifar10::batch_count(indices.size(), options_.batch_size); ++i) {
      train_step(cifar10::batch_of(indices, i, options_.batch_size), sums);
    }
    ++epoch_;
    images_per_second_ = sums[2] / std::chrono::duration<double>(Clock::now() - start).count();
    return means_of(sums);
  }

  void train_step(std::span<const std::int64_t> indices, Sums& sums) {
    cifar10::Random random = cifar10::random_stream({options_.seed, step_});
    batch_.fill(sets_.train, indices, &random, cifar10::draw_pad_crop_flip);
    optimizer_.zero_grad();
    loss_of(batch_, sums).backward();
    optimizer_.step();
    ++step_;
  }

  // Returns the mean loss of a batch, and adds the batch to the sums.
  torch::Tensor loss_of(Batch& batch, Sums& sums) {
    const auto [images, labels] = cifar10::as_tensors(batch, device_);
    const torch::Tensor logits = network_->forward(images);
    const torch::Tensor loss = torch::cross_entropy_loss(logits, labels);
    const auto count = static_cast<double>(labels.size(0));
    sums[0] += loss.item<double>() * count;
    sums[1] += logits.argmax(1).eq(labels).sum().item<double>();
    sums[2] += count;
    return loss;
  }

  Metrics evaluate(const Dataset& images) {
    constexpr std::size_t batch_size = 100;
    const torch::NoGradGuard no_grad;
    network_->eval();
    const Indices indices = all_of(images);
    Sums sums(3);
    for (std::size_t i = 0; i < cifar10::batch_count(indices.size(), batch_size); ++i) {
      batch_.fill(images, cifar10::batch_of(indices, i, batch_size));
      (void)loss_of(batch_, sums);
    }
    network_->train();
    return means_of(sums);
  }

  void report(const Metrics& train, const Metrics& validation) const {
    std::printf(
        "epoch %lld/%lld: loss %.4f, accuracy %.4f, validation loss %.4f, validation accuracy "
        "%.4f, learning rate %.3g, %.0f images/s\n",
        static_cast<long long>(epoch_), static_cast<long long>(options_.epochs), train.loss,
        train.accuracy, validation.loss, validation.accuracy, learning_rate(), images_per_second_);
    std::fflush(stdout);
  }

  void save() {
    if (options_.checkpoints.empty()) return;
    const std::string name = "checkpoint-" + std::to_string(epoch_) + ".pt";
    cifar10::save_network(options_.checkpoints / name, network_);
  }

  const Options& options_;
  const Sets& sets_;
  torch::Device device_;
  cifar10::Network network_;
  torch::optim::SGD optimizer_;
  Batch batch_;
  std::int64_t epoch_ = 0;
  std::uint64_t step_ = 0;
  double images_per_second_ = 0.0;
};

}  // namespace

int main(int argc, char** argv) {
  examples::keep_freed_memory();
  Options options;
  CLI::App app("Trains on CIFAR-10 in TFRecord files.", "cifar10_tfrecord_single");
  tfrecord::add_options(app, options);
  CLI11_PARSE(app, argc, argv);
  try {
    at::set_num_threads(options.threads);
    const Sets sets = read_sets(options);
    Trainer(options, sets).run();
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
