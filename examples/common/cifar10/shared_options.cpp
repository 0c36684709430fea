// SPDX-License-Identifier: Apache-2.0
#include "shared_options.hpp"

#include <CLI/CLI.hpp>
#include <kolo/kolo.hpp>

#include "stand_in.hpp"

namespace cifar10 {

void add_shared_options(CLI::App& app, SharedOptions& options, const Minimums& minimums) {
  const auto from = [](int least) { return CLI::Range(least, 1'000'000); };
  app.add_option("--data-dir", options.data_dir,
                 "Directory of CIFAR-10's binary files; without it, images are generated");
  app.add_option("--epochs", options.epochs, "Number of passes over the images")
      ->check(from(minimums.epochs))
      ->capture_default_str();
  app.add_option("--batch-size", options.batch_size, "Images per rank and step")
      ->check(from(minimums.batch_size))
      ->capture_default_str();
  app.add_option("--seed", options.seed, "Seed of all random numbers")->capture_default_str();
  app.add_option("--limit", options.limit, "Number of images to train on; 0: all")
      ->check(from(0))
      ->capture_default_str();
  app.add_option("--stand-in-size", options.stand_in_size, "Number of images to generate")
      ->check(from(minimums.stand_in_size))
      ->capture_default_str();
  app.add_option("--threads", options.threads, "Threads per rank")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
}

Data read_or_generate(const SharedOptions& options) {
  Data data;
  kolo::on_every_rank([&] {
    data = options.data_dir.empty() ? make_stand_in(options.stand_in_size, options.seed)
                                    : read_cifar10(options.data_dir);
  });
  if (options.limit != 0) data.train.keep_first(options.limit);
  return data;
}

}  // namespace cifar10
