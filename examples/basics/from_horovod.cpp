// SPDX-License-Identifier: Apache-2.0
// The same program as from_horovod.py, for Kolo. Run as: mpirun -np 2 from_horovod
#include <kolo/kolo.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <numeric>
#include <vector>

constexpr std::int64_t examples = 960, batch_size = 16, epochs = 5, warmup = 20;
constexpr int inputs = 4;
constexpr double rate = 0.02;

float input(std::int64_t number, int i) { return (7 * number + 5 * i * i) % 19 / 9.0F - 1.0F; }

float target(std::int64_t number) {
  float sum = 1.0F + number * 13 % 7 / 10.0F;
  for (int i = 0; i < inputs; ++i) sum += input(number, i);
  return sum;
}

// Takes the place of torch.nn.Linear and torch.optim.SGD in the Python program.
struct Linear {
  std::array<float, inputs + 1> weights, gradient{}, momentum{};  // the last weight is the bias
  double learning_rate = rate;

  std::vector<kolo::NamedTensor> gradients() { return {{"weights", gradient}}; }
  void step() {
    for (std::size_t i = 0; i < weights.size(); ++i) {
      momentum[i] = 0.9F * momentum[i] + gradient[i];
      weights[i] -= static_cast<float>(learning_rate) * momentum[i];
    }
  }

  // The mean squared error of a batch, and its gradient.
  double backward(const std::int64_t* numbers, std::int64_t count) {
    double loss = 0.0;
    gradient.fill(0.0F);
    for (std::int64_t n = 0; n < count; ++n) {
      float error = weights[inputs] - target(numbers[n]);
      for (int i = 0; i < inputs; ++i) error += weights[i] * input(numbers[n], i);
      loss += error * error / count;
      for (int i = 0; i < inputs; ++i) gradient[i] += 2 * error * input(numbers[n], i) / count;
      gradient[inputs] += 2 * error / count;
    }
    return loss;
  }
};

int main(int argc, char** argv) {
  kolo::Session session(argc, argv);
  Linear model;
  model.weights.fill(kolo::rank());  // wrong on all ranks but 0
  kolo::DistributedOptimizer optimizer(model, {.op = kolo::ReduceOp::average});
  kolo::broadcast_parameters({{"weights", model.weights}, {"momentum", model.momentum}},
                             /*root=*/0);

  kolo::DistributedSampler sampler({.examples = examples, .shuffle = false});
  const kolo::LearningRateWarmup learning_rate(
      {.from = rate, .to = rate * kolo::size(), .steps = warmup});
  std::vector<std::int64_t> indices;
  std::int64_t step = 0;
  for (std::int64_t epoch = 0; epoch < epochs; ++epoch) {
    indices = sampler.indices(epoch);
    const auto size = static_cast<std::int64_t>(indices.size());
    double total = 0.0;
    for (std::int64_t begin = 0; begin < size; begin += batch_size) {
      const std::int64_t count = std::min(batch_size, size - begin);
      model.learning_rate = learning_rate(step);
      const double loss = model.backward(indices.data() + begin, count);
      optimizer.step();
      total += loss * count;
      ++step;
    }
    const double mean = kolo::average(total / size);
    if (kolo::rank() == 0) std::printf("epoch %ld: loss %.4f\n", epoch + 1, mean);
  }

  const std::vector<std::int64_t> own = {std::ssize(indices)};
  const auto seen = kolo::allgather(own);
  if (kolo::rank() == 0) {
    std::ofstream file("model.bin", std::ios::binary);
    file.write(reinterpret_cast<const char*>(model.weights.data()), sizeof model.weights);
    std::printf("%ld examples in each epoch\n",
                std::accumulate(seen.values.begin(), seen.values.end(), std::int64_t{0}));
  }
}
