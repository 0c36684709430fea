// SPDX-License-Identifier: Apache-2.0
// Trains a small convolutional network on CIFAR-10 in TFRecord files:
//
//     mpirun -np 2 cifar10_tfrecord --data cifar-10-tfrecords
//
// The changes that make it distributed are marked KOLO here and in trainer.cpp, with the numbers
// that a well-known Horovod workshop gives them.
#include "trainer.hpp"  // first, as clang 14 needs it

#include <ATen/Parallel.h>

#include "program.hpp"

namespace {

void train(const tfrecord::Options& options) {
  at::set_num_threads(options.threads);
  const tfrecord::Sets sets = tfrecord::read_sets(options);
  tfrecord::Trainer(options, sets).run();
}

}  // namespace

int main(int argc, char** argv) {
  examples::keep_freed_memory();
  // KOLO, changes 1 and 2: a session around the whole program.
  return examples::run(argc, argv, [&] {
    if (const auto options = tfrecord::parse_options(argc, argv)) train(*options);
  });
}
