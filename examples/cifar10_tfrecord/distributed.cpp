// SPDX-License-Identifier: Apache-2.0
// Trains a small convolutional network on CIFAR-10 in TFRecord files, on any number of ranks:
//
//     mpirun -np 2 cifar10_tfrecord --data cifar-10-tfrecords
//
// KOLO marks the changes of single_process.cpp, with the numbers that a well-known Horovod workshop
// gives them.
#include <kolo/torch.hpp>  // KOLO, change 1; first, as clang 14 needs it

#include <ATen/Parallel.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <optional>
#include <span>
#include <stdexcept>
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

// KOLO: if one rank cannot read the files, or reads different numbers of images, every rank throws.
Sets read_sets(const Options& options) {
  Sets sets;
  kolo::on_every_rank([&] {
    sets = {.train = tfrecord::read_images(options.data / "train"),
            .validation = tfrecord::read_images(options.data / "validation"),
            .eval = tfrecord::read_images(options.data / "eval")};
    if (sets.train.size() < static_cast<std::size_t>(kolo::size())) {
      throw std::runtime_error(std::to_string(sets.train.size()) + " images cannot be shared by " +
                               std::to_string(kolo::size()) + " ranks");
    }
  });
  const auto size_of = [](const Dataset& set) { return static_cast<std::int64_t>(set.size()); };
  examples::check_same_sizes({size_of(sets.train), size_of(sets.validation), size_of(sets.eval)});
  return sets;
}

torch::optim::SGD make_sgd(const cifar10::Network& network, const Options& options) {
  return torch::optim::SGD(network->parameters(), torch::optim::SGDOptions(options.learning_rate)
                                                      .momentum(options.momentum)
                                                      .weight_decay(options.weight_decay));
}

// KOLO, change 8: the steps of an epoch are divided by the number of ranks.
kolo::DistributedSampler sampler_of(const Dataset& images, const Options& options) {
  return kolo::DistributedSampler(
      {.examples = static_cast<std::int64_t>(images.size()), .seed = options.seed});
}

Indices share_of(const Dataset& images) {
  const kolo::DistributedSampler share({.examples = static_cast<std::int64_t>(images.size()),
                                        .shuffle = false,
                                        .remainder = kolo::Remainder::uneven});
  return share.indices();
}

struct Metrics {
  double loss, accuracy;
};

// Sums over images: the loss, the number of right answers, and the number of images.
using Sums = std::vector<double>;

Metrics means_of(Sums sums) {
  // KOLO, change 7: means over the images of all ranks.
  kolo::allreduce(sums, {.op = kolo::ReduceOp::sum});
  return {.loss = sums[0] / sums[2], .accuracy = sums[1] / sums[2]};
}

class Trainer {
 public:
  Trainer(const Options& options, const Sets& sets)
      : options_(options),
        sets_(sets),
        device_(kolo::local_device()),  // KOLO, change 3: this rank's GPU, if there is one
        network_(cifar10::make_network(options.seed, device_)),
        // KOLO, change 6: the optimizer averages gradients over the ranks.
        optimizer_(make_sgd(network_, options), network_->named_parameters()),
        sampler_(sampler_of(sets.train, options)),
        // KOLO, change 4: the learning rate grows to n times that of one rank ...
        warmup_({.from = options.learning_rate,
                 .to = options.learning_rate * kolo::size(),
                 .steps = static_cast<std::int64_t>(
                     options.warmup_epochs * static_cast<double>(sampler_.steps_left(
                                                 static_cast<std::int64_t>(options.batch_size))))}),
        // ... and falls when the validation loss of all ranks stops improving.
        plateau_({.learning_rate = 1.0, .patience = options.patience}) {
    if (!options.checkpoints.empty())
      checkpoints_.emplace(kolo::CheckpointerOptions{options.checkpoints});
    resume();
    // KOLO, change 7: all ranks start from rank 0's state.
    kolo::broadcast_parameters(*network_, /*root=*/0);
    kolo::broadcast_optimizer_state(optimizer_, /*root=*/0);
  }

  void run() {
    while (epoch_ < options_.epochs) {
      const Metrics train = train_epoch();
      const Metrics validation = evaluate(sets_.validation);
      if (kolo::rank() == 0) report(train, validation);  // KOLO, change 7: one rank prints
      reduce_learning_rate(validation.loss);
      save(validation.loss);
    }
    const Metrics test = evaluate(sets_.eval);
    if (kolo::rank() != 0) return;
    std::printf("Test loss    : %.4f\nTest accuracy: %.4f\n", test.loss, test.accuracy);
  }

 private:
  [[nodiscard]] static std::uint64_t rank() { return static_cast<std::uint64_t>(kolo::rank()); }

  [[nodiscard]] double learning_rate() const {
    return warmup_(static_cast<std::int64_t>(step_)) * plateau_.learning_rate();
  }

  Metrics train_epoch() {
    using Clock = std::chrono::steady_clock;
    const Clock::time_point start = Clock::now();
    // Dropout and augmentation differ between ranks.
    torch::manual_seed(options_.seed + step_ * static_cast<std::uint64_t>(kolo::size()) + rank());
    const Indices indices = sampler_.indices(epoch_);
    Sums sums(3);
    for (std::size_t i = 0; i < cifar10::batch_count(indices.size(), options_.batch_size); ++i) {
      train_step(cifar10::batch_of(indices, i, options_.batch_size), sums);
    }
    ++epoch_;
    images_per_second_ =
        kolo::size() * sums[2] / std::chrono::duration<double>(Clock::now() - start).count();
    return means_of(sums);
  }

  void train_step(std::span<const std::int64_t> indices, Sums& sums) {
    cifar10::Random random = cifar10::random_stream({options_.seed, step_, rank()});
    batch_.fill(sets_.train, indices, &random, cifar10::draw_pad_crop_flip);
    kolo::set_learning_rate(optimizer_, learning_rate());
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
    const Indices indices = share_of(images);
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

  void reduce_learning_rate(double validation_loss) {
    if (!plateau_.update(validation_loss) || kolo::rank() != 0) return;
    std::printf("the validation loss has not fallen for %d epochs: the learning rate is now %.3g\n",
                options_.patience + 1, learning_rate());
  }

  // KOLO, change 7: all ranks load and save together.
  void resume() {
    const auto found = checkpoints_ ? checkpoints_->load_latest() : std::nullopt;
    if (!found) return;
    kolo::load_state(*network_, found->part("network"));
    kolo::load_state(optimizer_, found->part("optimizer"));
    sampler_.load_state(found->part("sampler"));
    plateau_.load_state(found->part("plateau"));
    epoch_ = sampler_.epoch();
    step_ = static_cast<std::uint64_t>(found->step);
  }

  void save(double validation_loss) {
    if (!checkpoints_) return;
    sampler_.begin_epoch(epoch_);
    checkpoints_->save(static_cast<std::int64_t>(step_),
                       {{"network", kolo::state_view(*network_)},
                        {"optimizer", kolo::state_view(optimizer_)},
                        {"sampler", sampler_.state()},
                        {"plateau", plateau_.state()}},
                       {.metric = validation_loss});
  }

  const Options& options_;
  const Sets& sets_;
  torch::Device device_;
  cifar10::Network network_;
  kolo::DistributedOptimizer<torch::optim::SGD> optimizer_;
  kolo::DistributedSampler sampler_;
  kolo::LearningRateWarmup warmup_;
  kolo::ReduceOnPlateau plateau_;
  std::optional<kolo::Checkpointer> checkpoints_;
  Batch batch_;
  std::int64_t epoch_ = 0;
  std::uint64_t step_ = 0;
  double images_per_second_ = 0.0;
};

}  // namespace

int main(int argc, char** argv) {
  examples::keep_freed_memory();
  // KOLO, change 2: a session around the whole program.
  return examples::run(argc, argv, [&] {
    Options options;
    CLI::App app("Trains on CIFAR-10 in TFRecord files.", "cifar10_tfrecord");
    tfrecord::add_options(app, options);
    app.add_option("--warmup-epochs", options.warmup_epochs, "Until the rate is that of all ranks")
        ->check(CLI::Range(0.0, 1e6));
    app.add_option("--patience", options.patience,
                   "Epochs without a better validation loss before the rate falls to a tenth")
        ->check(CLI::Range(0, 1'000'000));
    if (!examples::parse(app, argc, argv)) return;
    at::set_num_threads(options.threads);
    const Sets sets = read_sets(options);
    Trainer(options, sets).run();
  });
}
