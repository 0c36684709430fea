// SPDX-License-Identifier: Apache-2.0
// DistributedOptimizer around a custom optimizer, without a framework.
#include <kolo/kolo.hpp>

#include <algorithm>
#include <cstddef>
#include <iostream>
#include <random>
#include <string>
#include <vector>

// Linear regression by gradient descent. Kolo requires only named gradients and a step.
struct LinearRegression {
  std::vector<float> weight, weight_gradient;
  float bias = 0.0F, bias_gradient = 0.0F;
  float learning_rate = 0.1F;

  explicit LinearRegression(std::size_t inputs) : weight(inputs), weight_gradient(inputs) {}

  std::vector<kolo::NamedTensor> parameters() { return {{"weight", weight}, {"bias", bias}}; }
  std::vector<kolo::NamedTensor> gradients() {
    return {{"weight", weight_gradient}, {"bias", bias_gradient}};
  }
  void step() {
    for (std::size_t i = 0; i < weight.size(); ++i) weight[i] -= learning_rate * weight_gradient[i];
    bias -= learning_rate * bias_gradient;
  }
};

int main(int argc, char** argv) {
  kolo::Session session(argc, argv);

  LinearRegression model(8);
  kolo::broadcast_parameters(model.parameters(), /*root=*/0);
  kolo::DistributedOptimizer optimizer(model, {.op = kolo::ReduceOp::average});

  // A different stream of examples on every rank: the target is sum(x) + 1.
  std::mt19937 random(static_cast<unsigned>(kolo::rank()));
  std::normal_distribution<float> normal;
  double loss = 0.0;
  for (int iteration = 0; iteration < 200; ++iteration) {
    std::fill(model.weight_gradient.begin(), model.weight_gradient.end(), 0.0F);
    model.bias_gradient = 0.0F;
    loss = 0.0;
    constexpr int batch = 32;
    for (int example = 0; example < batch; ++example) {
      std::vector<float> x(model.weight.size());
      float target = 1.0F;
      float prediction = model.bias;
      for (std::size_t i = 0; i < x.size(); ++i) {
        x[i] = normal(random);
        target += x[i];
        prediction += model.weight[i] * x[i];
      }
      const float error = prediction - target;
      loss += static_cast<double>(error) * error / batch;
      for (std::size_t i = 0; i < x.size(); ++i) model.weight_gradient[i] += error * x[i] / batch;
      model.bias_gradient += error / batch;
    }
    optimizer.ready("weight");  // optional: starts its allreduce now, to overlap other work
    optimizer.step();           // reduces the rest, waits, then steps the model
  }
  const double mean_loss =
      kolo::average(loss);  // or kolo::average({loss, accuracy}, /*weight=*/examples)
  if (kolo::rank() == 0)
    std::cout << "mean loss over " << kolo::size() << " ranks: " << mean_loss << '\n';
  return mean_loss < 1e-3 ? 0 : 1;
}
