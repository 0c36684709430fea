// SPDX-License-Identifier: Apache-2.0
#include "options.hpp"

#include <CLI/CLI.hpp>

#include "program.hpp"

namespace xray {

std::optional<Options> parse_options(int argc, char** argv) {
  Options options;
  CLI::App app("Trains a network to distinguish two classes of gray images.", "xray");
  app.option_defaults()->always_capture_default();
  const auto count = [](int least) { return CLI::Range(least, 1'000'000); };

  app.add_option("--data", options.data,
                 "Directory with a folder of JPEG or PNG files for each class")
      ->required();
  app.add_option("--generate", options.generate,
                 "First generate this many images there, on rank 0, unless the directory exists")
      ->check(count(0));
  app.add_option("--epochs-total", options.epochs_total, "Epochs in total, divided among the ranks")
      ->check(count(1));
  app.add_option("--batch-size", options.batch_size, "Images per rank and step")->check(count(1));
  app.add_option("--image-size", options.image_size, "Side in pixels to which images are scaled")
      ->check(CLI::Range(16, 4096));
  app.add_option("--learning-rate", options.learning_rate,
                 "Learning rate for one rank; grows to n times its value on n ranks")
      ->check(CLI::Range(0.0, 1.0));
  app.add_option("--warmup-epochs", options.warmup_epochs)->check(CLI::Range(0.0, 1e6));
  app.add_option("--validation-fraction", options.validation_fraction,
                 "Fraction of each class for validation")
      ->check(CLI::Range(0.0, 0.9));
  app.add_option("--patience", options.patience,
                 "Epochs without a better validation loss to tolerate")
      ->check(count(0));
  app.add_flag("--compare", options.compare, "First train on rank 0 alone, and print both results");
  app.add_option("--seed", options.seed, "Seed of all random numbers");
  app.add_option("--threads", options.threads, "Threads per rank")->check(count(1));
  app.add_option("--loader-threads", options.loader_threads,
                 "Threads per rank that read and scale images ahead")
      ->check(count(0));
  if (!examples::parse(app, argc, argv)) return std::nullopt;
  return options;
}

}  // namespace xray
