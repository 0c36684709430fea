// SPDX-License-Identifier: Apache-2.0
// Trains a small network on CIFAR-10, with communication between ranks only once every several
// steps:
//
//     mpirun -np 2 local_sgd --algorithm diloco --interval 16
//
// The lines that use Kolo are marked KOLO in trainer.cpp and outer.cpp.
#include <ATen/Parallel.h>

#include <cstdio>
#include <kolo/kolo.hpp>

#include "options.hpp"
#include "program.hpp"
#include "trainer.hpp"

namespace {

cifar10::Data load_data(const local_sgd::Options& options) {
  cifar10::Data data = read_or_generate(options);
  examples::check_same_sizes(
      {static_cast<std::int64_t>(data.train.size()), static_cast<std::int64_t>(data.test.size())});
  return data;
}

void train(const local_sgd::Options& options) {
  at::set_num_threads(options.threads);
  const cifar10::Data data = load_data(options);
  const double accuracy = local_sgd::Trainer(options, data).run();
  if (kolo::rank() == 0) std::printf("test accuracy: %.4f\n", accuracy);
}

}  // namespace

int main(int argc, char** argv) {
  examples::keep_freed_memory();
  return examples::run(argc, argv, [&] {
    if (const auto options = local_sgd::parse_options(argc, argv)) train(*options);
  });
}
