// SPDX-License-Identifier: Apache-2.0
// The cost of agreement as the number of ranks grows, as CSV.
//
//   scale_program [--gradients resnet50,bert-base] [--ranks 16,64,256,1024,4096,16384]
#include <chrono>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "gradient_sets.hpp"
#include "scale.hpp"
#include "support/command_line.hpp"

namespace {

using kolo::internal::simulation::ClusterModel;
using kolo::internal::simulation::Gradient;
using kolo::internal::simulation::StepCost;

void print(const std::string& set, const char* shape, const std::vector<StepCost>& costs,
           double seconds) {
  for (const StepCost& cost : costs)
    std::printf("%s,%s,%d,%s,%lld,%lld,%lld,%lld,%llu,%.1f,%d,%.1f\n", set.c_str(), shape,
                cost.ranks, cost.step.c_str(), static_cast<long long>(cost.root.messages()),
                static_cast<long long>(cost.root.bytes()),
                static_cast<long long>(cost.max_messages), static_cast<long long>(cost.max_bytes),
                static_cast<unsigned long long>(cost.batches),
                static_cast<double>(cost.tail.count()) / 1000.0, cost.hops, seconds);
  std::fflush(stdout);
}

template <typename Count>
void run(const std::string& set, const char* shape, Count count) {
  const auto begin = std::chrono::steady_clock::now();
  const std::vector<StepCost> costs = count();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  print(set, shape, costs, took.count());
}

}  // namespace

int main(int argc, char** argv) {
  try {
    std::vector<std::string> sets{"resnet50", "bert-base"};
    std::vector<int> ranks{16, 64, 256, 1024, 4096, 16384};
    kolo::internal::campaign::CommandLine()
        .add("--gradients", sets)
        .add("--ranks", ranks)
        .parse(argc, argv);
    std::puts(
        "gradients,shape,ranks,step,root_messages,root_bytes,max_messages,max_bytes,batches,"
        "tail_us,hops,seconds_to_simulate");
    const ClusterModel model;
    for (const std::string& set : sets) {
      std::vector<Gradient> gradients;
      for (const perf::Gradient& one : perf::find_gradients(set, kolo::DType::f32))
        gradients.push_back({one.name, one.shape});
      for (const int count : ranks) {
        run(set, "tree", [&] { return cost_of_tree(gradients, count, model); });
        run(set, "star", [&] { return cost_of_star(gradients, count, model); });
      }
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "scale_program: %s\n", error.what());
    return 1;
  }
}
