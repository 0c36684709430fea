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

}  // namespace

std::optional<Options> parse_options(int argc, char** argv) {
  Options options;
  CLI::App app("Trains a small network on CIFAR-10, on as many ranks as mpirun starts.", "cifar10");

  app.add_option("--data-dir", options.data_dir,
                 "Where CIFAR-10's binary files are; a generated stand-in is used without it");
  app.add_option("--download", options.download,
                 "Get CIFAR-10 (162 MB) into this directory, unless it is there, and train on it")
      ->excludes("--data-dir");
  app.add_option("--epochs", options.epochs, "How often each image is seen")
      ->check(CLI::Range(0, 1'000'000))
      ->capture_default_str();
  app.add_option("--batch-size", options.batch_size, "Images per rank and step")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  app.add_option("--learning-rate", options.learning_rate, "For one rank; scaled by their number")
      ->check(not_positive)
      ->capture_default_str();
  app.add_option("--seed", options.seed, "Of all random numbers")->capture_default_str();
  app.add_option("--save", options.save,
                 "Directory for checkpoints (after each epoch) and model.pt (at the end)");
  app.add_option("--save-every", options.save_every,
                 "Save a checkpoint after so many steps too; 0: only after each epoch")
      ->check(CLI::Range(0, 1'000'000'000))
      ->capture_default_str();
  app.add_option("--resume", options.resume,
                 "Go on from this checkpoint, or from the newest in this directory");
  app.add_flag("!--no-augment", options.augment, "Train on the images as they are");
  app.add_option("--limit", options.limit, "Train on the first images only; 0: on all")
      ->check(CLI::Range(0, 1'000'000))
      ->capture_default_str();
  app.add_option("--stand-in-size", options.stand_in_size, "How many images to generate")
      ->check(CLI::Range(10, 1'000'000))
      ->capture_default_str();
  app.add_option("--threads", options.threads, "Threads of each rank")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.add_option("--loader-threads", options.loader_threads,
                 "Threads of each rank that make batches ahead; 0: none")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  app.add_option("--device", options.device, "auto: this rank's GPU if there is one")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}))
      ->capture_default_str();
  app.add_flag("--bf16", options.bf16, "Compute convolutions and products in bf16");

  if (!examples::parse(app, argc, argv)) return std::nullopt;
  return options;
}

}  // namespace cifar10
