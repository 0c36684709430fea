// SPDX-License-Identifier: Apache-2.0
// A network with one hidden layer, and the data that it learns. Neither knows about Kolo.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

constexpr int inputs = 32, hidden = 256;

struct Example {
  std::array<double, inputs> x;
  double y;
};

// The same examples on each rank.
std::vector<Example> make_examples(std::int64_t count);

class Network {
 public:
  Network();

  // Returns the mean loss of the examples `batch` of `data`, and sets `gradient` to its gradient
  // times `weight`. Without examples both are zero.
  double gradients(const std::vector<Example>& data, std::span<const std::int64_t> batch,
                   double weight);
  void step(double learning_rate);

  // Both are the weights of the hidden layer, row by row, then those of the output.
  std::vector<double> parameters, gradient;
};
