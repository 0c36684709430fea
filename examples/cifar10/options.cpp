// SPDX-License-Identifier: Apache-2.0
#include "options.hpp"

#include <CLI/CLI.hpp>
#include <string>

#include "program.hpp"

namespace cifar10 {
namespace {

// CLI11's own check prints "not in range 2.2e-308 to 1.8e308".
std::string not_positive(const std::string& text) {
  double value = 0.0;
  const bool positive = CLI::detail::lexical_cast(text, value) && value > 0.0;
  return positive ? "" : "'" + text + "' is not a positive number";
}

void add_checkpoint_options(CLI::App& app, Options& options) {
  app.add_option("--save", options.save,
                 "Directory for checkpoints (after each epoch) and model.pt (at the end)");
  app.add_option("--save-every", options.save_every,
                 "Also save a checkpoint after this many steps; 0: only after each epoch")
      ->check(CLI::Range(0, 1'000'000'000))
      ->capture_default_str();
  app.add_option("--resume", options.resume,
                 "Resume from this checkpoint, or from the newest one in this directory");
}

}  // namespace

std::optional<Options> parse_options(int argc, char** argv) {
  Options options;
  CLI::App app("Trains a small network on CIFAR-10, on any number of ranks.", "cifar10");
  add_shared_options(app, options, {.epochs = 0});
  app.add_option(
         "--download", options.download,
         "Download CIFAR-10 (162 MB) to this directory, unless it is there, and train on it")
      ->excludes("--data-dir");
  app.add_option("--epochs-total", options.epochs_total,
                 "Epochs divided among the ranks, rounded up; in each, a rank sees all images")
      ->check(CLI::Range(1, 1'000'000))
      ->excludes("--epochs");
  app.add_option("--learning-rate", options.learning_rate,
                 "Learning rate for one rank; multiplied by the number of ranks")
      ->check(not_positive)
      ->capture_default_str();
  add_checkpoint_options(app, options);
  app.add_flag("!--no-augment", options.augment, "Train without shifting and flipping images");
  app.add_option("--loader-threads", options.loader_threads,
                 "Threads per rank that prepare batches ahead; 0: none")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  app.add_option("--device", options.device, "Device; auto: this rank's GPU if there is one")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}))
      ->capture_default_str();
  app.add_option("--compression", options.compression,
                 "Compression of the gradients that ranks send")
      ->check(CLI::IsMember({"none", "fp16", "bf16", "int8", "power-sgd"}))
      ->capture_default_str();
  app.add_flag("--bf16", options.bf16, "Compute convolutions and products in bf16");

  if (!examples::parse(app, argc, argv)) return std::nullopt;
  return options;
}

}  // namespace cifar10
