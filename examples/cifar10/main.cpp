// Trains a small convolutional network on CIFAR-10 with any number of ranks:
//
//     mpirun -np 2 cifar10 --data-dir cifar-10-batches-bin
//
// What makes it distributed is marked KOLO here, in trainer.cpp and in evaluation.cpp.
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <malloc.h>

#include <climits>
#include <cstdio>
#include <exception>
#include <kolo/kolo.hpp>

#include "load_data.hpp"
#include "options.hpp"
#include "trainer.hpp"

namespace {

// Each step allocates the same large tensors again. glibc would hand them back to the kernel in
// between, and the kernel would clear fresh pages for the next step.
void keep_freed_memory() {
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, INT_MAX);
}

void train(const cifar10::Options& options) {
  at::set_num_threads(options.threads);
  const cifar10::Data data = cifar10::load_data(options);
  cifar10::Trainer trainer(options, data);
  const double accuracy = trainer.run();
  if (kolo::rank() == 0) fmt::print("test accuracy: {:.4f}\n", accuracy);
}

}  // namespace

int main(int argc, char** argv) {
  keep_freed_memory();
  int rank = 0;
  try {
    kolo::Session session(argc, argv);  // KOLO: start; inside `try`, so that it ends before exit
    rank = kolo::rank();
    const auto options = cifar10::parse_options(argc, argv, /*speak=*/rank == 0);
    if (options) train(*options);
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "rank {}: {}\n", rank, error.what());
    return 1;
  }
}
