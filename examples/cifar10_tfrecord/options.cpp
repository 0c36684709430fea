// SPDX-License-Identifier: Apache-2.0
#include "options.hpp"

#include <CLI/CLI.hpp>

#include "program.hpp"

namespace tfrecord {

std::optional<Options> parse_options(int argc, char** argv) {
  Options options;
  CLI::App app("Trains on CIFAR-10 in TFRecord files, on as many ranks as mpirun starts.",
               "cifar10_tfrecord");
  app.option_defaults()->always_capture_default();
  const auto count = [](int least) { return CLI::Range(least, 1'000'000); };
  const auto fraction = CLI::Range(0.0, 1.0);

  app.add_option("--data", options.data, "Has the folders train, validation and eval")->required();
  app.add_option("--epochs", options.epochs)->check(count(0));
  app.add_option("--batch-size", options.batch_size, "Images per rank and step")->check(count(1));
  app.add_option("--learning-rate", options.learning_rate,
                 "For one rank; grows to that times their number")
      ->check(fraction);
  app.add_option("--momentum", options.momentum)->check(fraction);
  app.add_option("--weight-decay", options.weight_decay)->check(fraction);
  app.add_option("--warmup-epochs", options.warmup_epochs)->check(CLI::Range(0.0, 1e6));
  app.add_option("--patience", options.patience,
                 "Epochs without a better validation loss before the rate falls to a tenth")
      ->check(count(0));
  app.add_option("--checkpoints", options.checkpoints,
                 "Directory for checkpoints; training goes on from the newest in it");
  app.add_option("--seed", options.seed, "Of all random numbers");
  app.add_option("--threads", options.threads, "Threads of each rank")->check(count(1));
  app.add_option("--loader-threads", options.loader_threads,
                 "Threads of each rank that make batches ahead")
      ->check(count(0));
  if (!examples::parse(app, argc, argv)) return std::nullopt;
  return options;
}

}  // namespace tfrecord
