// SPDX-License-Identifier: Apache-2.0
// Trains a small convolutional network on CIFAR-10 with any number of ranks:
//
//     mpirun -np 2 cifar10 --data-dir cifar-10-batches-bin
//
// The lines that make it distributed are marked KOLO in trainer.cpp and
// common/cifar10/evaluation.cpp.
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <kolo/kolo.hpp>
#include <optional>

#include "load_data.hpp"
#include "options.hpp"
#include "program.hpp"
#include "trainer.hpp"

namespace {

void train(const cifar10::Options& options) {
  at::set_num_threads(options.threads);
  const cifar10::Data data = cifar10::load_data(options);
  cifar10::Trainer trainer(options, data);
  const std::optional<cifar10::Metrics> test = trainer.run();
  if (!test || kolo::rank() != 0) return;
  fmt::print("test loss: {:.4f}\ntest accuracy: {:.4f}\n", test->loss, test->accuracy);
}

}  // namespace

int main(int argc, char** argv) {
  examples::keep_freed_memory();
  return examples::run(argc, argv, [&] {
    if (const auto options = cifar10::parse_options(argc, argv)) train(*options);
  });
}
