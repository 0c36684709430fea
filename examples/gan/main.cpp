// SPDX-License-Identifier: Apache-2.0
// Trains a deep convolutional GAN on images of CIFAR-10 with any number of ranks:
//
//     mpirun -np 2 gan --data-dir cifar-10-batches-bin --samples pictures
//
// The lines that use Kolo are marked KOLO in trainer.cpp.
#include <ATen/Parallel.h>
#include <torch/utils.h>

#include <kolo/kolo.hpp>
#include <stdexcept>

#include "options.hpp"
#include "program.hpp"
#include "trainer.hpp"

namespace {

cifar10::Dataset images_of_class(const cifar10::Dataset& all, int label) {
  if (label < 0) return all;
  cifar10::Dataset chosen;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all.labels[i] != label) continue;
    const auto image = all.image(i);
    chosen.pixels.insert(chosen.pixels.end(), image.begin(), image.end());
    chosen.labels.push_back(all.labels[i]);
  }
  return chosen;
}

cifar10::Dataset load_images(const gan::Options& options) {
  cifar10::SharedOptions all = options;
  all.limit = 0;  // unlimited here: in this program --limit counts images of the class
  cifar10::Dataset images = images_of_class(read_or_generate(all).train, options.label);
  if (options.limit != 0) images.keep_first(options.limit);
  examples::check_same_sizes({static_cast<std::int64_t>(images.size())});
  if (images.size() < 2 * static_cast<std::size_t>(kolo::size()))
    throw std::runtime_error("too few images: each rank needs two");
  return images;
}

void train(const gan::Options& options) {
  at::set_num_threads(options.threads);
  torch::manual_seed(options.seed);  // for the initial weights
  const cifar10::Dataset images = load_images(options);
  gan::Trainer(options, images).run();
}

}  // namespace

int main(int argc, char** argv) {
  examples::keep_freed_memory();
  return examples::run(argc, argv, [&] {
    if (const auto options = gan::parse_options(argc, argv)) train(*options);
  });
}
