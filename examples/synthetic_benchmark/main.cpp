// SPDX-License-Identifier: Apache-2.0
// Measures training in images per second on synthetic images: the cost of the network and of the
// exchange of its gradients, without reading data.
//
//     mpirun -np 2 synthetic_benchmark --model resnet50 --batch-size 32
#include "benchmark.hpp"
#include "options.hpp"
#include "program.hpp"
#include "report.hpp"

int main(int argc, char** argv) {
  examples::keep_freed_memory();
  return examples::run(argc, argv, [&] {
    const auto options = benchmark::parse_options(argc, argv);
    if (options) benchmark::print_results(*options, benchmark::measure(*options));
  });
}
