// Images per second of training on images that are made up once: what the network and the exchange
// of its gradients allow, without data.
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
