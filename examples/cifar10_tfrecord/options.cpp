// SPDX-License-Identifier: Apache-2.0
#include "options.hpp"

#include <CLI/CLI.hpp>

namespace tfrecord {

void add_options(CLI::App& app, Options& options) {
  app.option_defaults()->always_capture_default();
  const auto count = [](int least) { return CLI::Range(least, 1'000'000); };
  const auto fraction = CLI::Range(0.0, 1.0);

  app.add_option("--data", options.data, "Directory with the folders train, validation and eval")
      ->required();
  app.add_option("--epochs", options.epochs)->check(count(0));
  app.add_option("--batch-size", options.batch_size, "Images per process and step")
      ->check(count(1));
  app.add_option("--learning-rate", options.learning_rate, "Learning rate for one process")
      ->check(fraction);
  app.add_option("--momentum", options.momentum)->check(fraction);
  app.add_option("--weight-decay", options.weight_decay)->check(fraction);
  app.add_option("--checkpoints", options.checkpoints,
                 "Directory for checkpoints after each epoch");
  app.add_option("--seed", options.seed, "Seed of all random numbers");
  app.add_option("--threads", options.threads, "Threads per process")->check(count(1));
}

}  // namespace tfrecord
