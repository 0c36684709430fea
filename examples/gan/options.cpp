// SPDX-License-Identifier: Apache-2.0
#include "options.hpp"

#include <CLI/CLI.hpp>

#include "program.hpp"

namespace gan {

std::optional<Options> parse_options(int argc, char** argv) {
  Options options;
  CLI::App app("Trains a network to draw images as those of CIFAR-10.", "gan");
  app.add_option("--data-dir", options.data_dir,
                 "Where CIFAR-10's binary files are; a generated stand-in is used without it");
  app.add_option("--label", options.label, "Class of the images, 0 to 9; -1: all")
      ->check(CLI::Range(-1, 9))
      ->capture_default_str();
  app.add_option("--epochs", options.epochs, "How often each image is seen")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  app.add_option("--batch-size", options.batch_size, "Images per rank and step")
      ->check(CLI::Range(2, 1'000'000))
      ->capture_default_str();
  app.add_option("--learning-rate", options.learning_rate, "Of both optimizers")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  app.add_option("--noise", options.noise, "Random numbers that an image is drawn from")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  app.add_option("--width", options.width, "Channels of both networks at the size of 16x16 pixels")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.add_option("--seed", options.seed, "Of all random numbers")->capture_default_str();
  app.add_option("--samples", options.samples,
                 "Directory for a picture of 64 images after each epoch (PPM)");
  app.add_option("--limit", options.limit, "Train on the first images only; 0: on all")
      ->check(CLI::Range(0, 1'000'000))
      ->capture_default_str();
  app.add_option("--stand-in-size", options.stand_in_size, "How many images to generate")
      ->check(CLI::Range(20, 1'000'000))
      ->capture_default_str();
  app.add_option("--threads", options.threads, "Threads of each rank")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  if (!examples::parse(app, argc, argv)) return std::nullopt;
  return options;
}

}  // namespace gan
