// SPDX-License-Identifier: Apache-2.0
#include "shared_options.hpp"

#include <CLI/CLI.hpp>
#include <kolo/kolo.hpp>

#include "stand_in.hpp"

namespace cifar10 {

void add_shared_options(CLI::App& app, SharedOptions& options, const Minimums& minimums) {
  const auto from = [](int least) { return CLI::Range(least, 1'000'000); };
  app.add_option("--data-dir", options.data_dir,
                 "Where CIFAR-10's binary files are; a generated stand-in is used without it");
  app.add_option("--epochs", options.epochs, "How often each image is seen")
      ->check(from(minimums.epochs))
      ->capture_default_str();
  app.add_option("--batch-size", options.batch_size, "Images per rank and step")
      ->check(from(minimums.batch_size))
      ->capture_default_str();
  app.add_option("--seed", options.seed, "Of all random numbers")->capture_default_str();
  app.add_option("--limit", options.limit, "Train on the first images only; 0: on all")
      ->check(from(0))
      ->capture_default_str();
  app.add_option("--stand-in-size", options.stand_in_size, "How many images to generate")
      ->check(from(minimums.stand_in_size))
      ->capture_default_str();
  app.add_option("--threads", options.threads, "Threads of each rank")
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
