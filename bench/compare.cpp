// SPDX-License-Identifier: Apache-2.0
// The cost of comparing parameters between the ranks: a step of an optimizer that compares in every
// pass, and of one that does not, in alternating blocks, for parameters of several sizes.
// Usage: mpirun -np N bench-compare [ROUNDS]
// Prints `tensors,mb,step_ms,comparison_ms`: medians over ROUNDS (default 11) blocks of ten steps.
#include <cstdio>
#include <kolo/kolo.hpp>
#include <string>
#include <vector>

#include "blocks.hpp"

namespace {

struct Trainer {
  Trainer(std::size_t tensors, std::size_t elements)
      : weights(tensors, std::vector<float>(elements, 1.0F)),
        slopes(tensors, std::vector<float>(elements, 1.0F)) {}

  static std::vector<kolo::NamedTensor> list(std::vector<std::vector<float>>& of) {
    std::vector<kolo::NamedTensor> named;
    for (std::size_t i = 0; i < of.size(); ++i) named.push_back({std::to_string(i), of[i]});
    return named;
  }
  std::vector<kolo::NamedTensor> parameters() { return list(weights); }
  std::vector<kolo::NamedTensor> gradients() { return list(slopes); }
  void step() {}

  std::vector<std::vector<float>> weights, slopes;
};

void measure(int rounds, std::size_t tensors, std::size_t elements) {
  constexpr int steps = 10;
  Trainer trainer(tensors, elements);
  kolo::DistributedOptimizer plain(trainer);
  kolo::DistributedOptimizer comparing(trainer, {.compare = {.every = 1}});
  std::vector<double> plain_ms;
  std::vector<double> difference_ms;
  for (int i = 0; i <= rounds; ++i) {
    const double without = blocks::time_of(steps, [&] { plain.step(); });
    const double with = blocks::time_of(steps, [&] { comparing.step(); });
    if (i == 0) continue;  // warms up
    plain_ms.push_back(without);
    difference_ms.push_back(with - without);
  }
  if (kolo::rank() == 0)
    std::printf("%zu,%.1f,%.3f,%.3f\n", tensors,
                static_cast<double>(tensors * elements * sizeof(float)) / 1e6,
                blocks::median(plain_ms), blocks::median(difference_ms));
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::stoi(argv[1]) : 11;
  if (rounds < 1) return 2;
  const kolo::Session session(argc, argv);
  measure(rounds, 20, 1'000);
  measure(rounds, 160, 160'000);  // about as ResNet-50
  measure(rounds, 20, 5'000'000);
}
