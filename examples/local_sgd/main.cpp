// SPDX-License-Identifier: Apache-2.0
// Trains a small network on CIFAR-10 whose ranks communicate once in many steps:
//
//     mpirun -np 2 local_sgd --algorithm diloco --interval 16
//
// The lines that use Kolo are marked KOLO in trainer.cpp and outer.cpp.
#include <ATen/Parallel.h>

#include <cstdio>
#include <kolo/kolo.hpp>

#include "options.hpp"
#include "program.hpp"
#include "stand_in.hpp"
#include "trainer.hpp"

namespace {

cifar10::Data load_data(const local_sgd::Options& options) {
  cifar10::Data data;
  kolo::on_every_rank([&] {
    data = options.data_dir.empty() ? cifar10::make_stand_in(options.stand_in_size, options.seed)
                                    : cifar10::read_cifar10(options.data_dir);
  });
  if (options.limit != 0) data.train.keep_first(options.limit);
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
