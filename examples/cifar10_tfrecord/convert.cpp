// SPDX-License-Identifier: Apache-2.0
// Converts CIFAR-10's binary files, or generated images, to TFRecord files for training, validation
// and evaluation:
//
//     cifar10_to_tfrecord --data-dir cifar-10-batches-bin --output cifar-10-tfrecords
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <filesystem>

#include "dataset.hpp"
#include "images.hpp"
#include "stand_in.hpp"

namespace {

namespace fs = std::filesystem;

struct Options {
  fs::path data_dir;
  fs::path output;
  std::size_t stand_in_size = 10'000;
  std::size_t limit = 0;
};

void write(const fs::path& output, const char* name, const cifar10::Dataset& images,
           std::size_t first, std::size_t count, std::size_t limit) {
  if (limit != 0) count = std::min(count, limit);
  const fs::path file = output / name / (std::string(name) + ".tfrecords");
  fs::create_directories(file.parent_path());
  tfrecord::write_images(file, images, first, count);
  std::printf("%s: %zu images\n", file.c_str(), count);
}

void convert(const Options& options) {
  const cifar10::Data data = options.data_dir.empty()
                                 ? cifar10::make_stand_in(options.stand_in_size, /*seed=*/42)
                                 : cifar10::read_cifar10(options.data_dir);
  // The last fifth of the training images; for CIFAR-10 that is data_batch_5.bin.
  const std::size_t validation = data.train.size() / 5;
  const std::size_t train = data.train.size() - validation;
  const std::size_t few = options.limit / 4;
  write(options.output, "train", data.train, 0, train, options.limit);
  write(options.output, "validation", data.train, train, validation, few);
  write(options.output, "eval", data.test, 0, data.test.size(), few);
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Writes CIFAR-10 as TFRecord files.", "cifar10_to_tfrecord");
  app.add_option("--data-dir", options.data_dir,
                 "Directory of CIFAR-10's binary files; without it, images are generated");
  app.add_option("--output", options.output,
                 "Directory in which to write the folders train, validation and eval")
      ->required();
  app.add_option("--stand-in-size", options.stand_in_size, "Number of images to generate")
      ->check(CLI::Range(10, 1'000'000))
      ->capture_default_str();
  app.add_option("--limit", options.limit,
                 "Maximum number of training images; the other folders get a quarter of it")
      ->check(CLI::Range(4, 1'000'000));
  CLI11_PARSE(app, argc, argv);
  try {
    convert(options);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
