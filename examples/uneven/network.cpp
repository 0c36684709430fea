// SPDX-License-Identifier: Apache-2.0
#include "network.hpp"

#include <cmath>
#include <cstddef>
#include <random>

namespace {

constexpr std::size_t columns = inputs;
constexpr std::size_t output = hidden * columns;  // where the output's weights begin

// Between -1 and 1. Written out, because distributions of the standard library differ.
double random_number(std::mt19937& random) {
  return static_cast<double>(random()) / 2147483648.0 - 1.0;
}

}  // namespace

std::vector<Example> make_examples(std::int64_t count) {
  std::mt19937 random(1);
  std::vector<Example> examples(static_cast<std::size_t>(count));
  for (Example& example : examples) {
    for (double& x : example.x) x = random_number(random);
    example.y = std::sin(2.0 * example.x[0] + example.x[1] - example.x[2]);
  }
  return examples;
}

Network::Network() : parameters(output + hidden), gradient(parameters.size()) {
  std::mt19937 random(2);
  for (double& parameter : parameters) parameter = random_number(random);
  for (std::size_t i = 0; i < output; ++i) parameters[i] *= 3.0 / std::sqrt(inputs);
  for (std::size_t i = output; i < parameters.size(); ++i) parameters[i] /= std::sqrt(hidden);
}

double Network::gradients(const std::vector<Example>& data, std::span<const std::int64_t> batch,
                          double weight) {
  gradient.assign(parameters.size(), 0.0);
  const auto count = static_cast<double>(batch.size());
  double loss = 0.0;
  std::array<double, hidden> activations;
  for (const std::int64_t index : batch) {
    const Example& example = data[static_cast<std::size_t>(index)];
    double error = -example.y;
    for (std::size_t row = 0; row < hidden; ++row) {
      double sum = 0.0;
      for (std::size_t k = 0; k < columns; ++k) sum += parameters[row * columns + k] * example.x[k];
      activations[row] = std::tanh(sum);
      error += parameters[output + row] * activations[row];
    }
    loss += error * error / count;
    const double scale = weight * 2.0 * error / count;
    for (std::size_t row = 0; row < hidden; ++row) {
      const double a = activations[row];
      gradient[output + row] += scale * a;
      const double backward = scale * parameters[output + row] * (1.0 - a * a);
      for (std::size_t k = 0; k < columns; ++k)
        gradient[row * columns + k] += backward * example.x[k];
    }
  }
  return loss;
}

void Network::step(double learning_rate) {
  for (std::size_t i = 0; i < parameters.size(); ++i) parameters[i] -= learning_rate * gradient[i];
}
