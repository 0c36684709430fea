// SPDX-License-Identifier: Apache-2.0
// Options shared by the programs that train on CIFAR-10, and the images that these options select.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>

#include "dataset.hpp"

namespace CLI {
class App;
}

namespace cifar10 {

struct SharedOptions {
  std::filesystem::path data_dir{};
  std::int64_t epochs = 1;
  std::size_t batch_size = 32;
  std::uint64_t seed = 42;
  std::size_t limit = 0;
  std::size_t stand_in_size = 10'000;
  int threads = 1;
};

/// The lowest values that a program accepts.
struct Minimums {
  int epochs = 1;
  int batch_size = 1;
  int stand_in_size = 10;
};

/// Adds an option to the command line for each member. The members' values are the defaults that
/// --help shows.
void add_shared_options(CLI::App& app, SharedOptions& options, const Minimums& minimums = {});

/// Reads CIFAR-10 from `options.data_dir`, or generates the stand-in if it is empty, on every rank,
/// and keeps the first `limit` images to train on. Collective. Throws kolo::Error on every rank if
/// any rank cannot read the files.
[[nodiscard]] Data read_or_generate(const SharedOptions& options);

}  // namespace cifar10
