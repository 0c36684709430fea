// SPDX-License-Identifier: Apache-2.0
#include "options.hpp"

#include <CLI/CLI.hpp>

#include "program.hpp"

namespace gan {

std::optional<Options> parse_options(int argc, char** argv) {
  Options options;
  CLI::App app("Trains a network to generate images like those of CIFAR-10.", "gan");
  // Batch normalization needs two images.
  add_shared_options(app, options, {.batch_size = 2, .stand_in_size = 20});
  app.add_option("--label", options.label, "Class of the images to imitate, 0 to 9; -1: all")
      ->check(CLI::Range(-1, 9))
      ->capture_default_str();
  app.add_option("--learning-rate", options.learning_rate, "Learning rate of both optimizers")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  app.add_option("--noise", options.noise, "Random numbers per generated image")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  app.add_option("--width", options.width, "Channels of both networks at 16x16 pixels")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.add_option("--samples", options.samples,
                 "Directory in which to write a picture of 64 images after each epoch (PPM)");
  if (!examples::parse(app, argc, argv)) return std::nullopt;
  return options;
}

}  // namespace gan
