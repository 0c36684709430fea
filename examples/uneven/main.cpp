// SPDX-License-Identifier: Apache-2.0
// Training with ranks of different speeds. The rank SLOW computes everything twice:
//
//     mpirun -np 2 uneven [SLOW [EPOCHS]]
#include <kolo/kolo.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <span>
#include <string>
#include <vector>

#include "network.hpp"

constexpr std::int64_t examples = 40'000, global_batch = 512;

// The network as Kolo sees it: named gradients, and a step that uses them.
struct Trainer {
  Network network;
  bool is_slow = false;

  std::vector<kolo::NamedTensor> gradients() { return {{"all", network.gradient}}; }
  std::vector<kolo::NamedTensor> parameters() { return {{"all", network.parameters}}; }
  void step() { network.step(0.01); }

  double backward(const std::vector<Example>& data, std::span<const std::int64_t> batch,
                  double weight) {
    if (is_slow) network.gradients(data, batch, weight);
    return network.gradients(data, batch, weight);
  }
};

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Prints the examples per second of each rank while the others wait, the best of several times.
// Returns their sum.
double speed_of_all_alone(Trainer& trainer, const std::vector<Example>& data) {
  const std::vector<std::int64_t> batch =
      kolo::DistributedSampler({.examples = 4 * global_batch, .rank = 0, .ranks = 1}).indices();
  double speed = 0.0;
  for (int rank = 0; rank < kolo::size(); ++rank) {
    kolo::barrier();
    if (kolo::rank() != rank) continue;
    for (int time = 0; time < 5; ++time) {
      const double begin = seconds_now();
      trainer.backward(data, batch, 1.0);
      speed = std::max(speed, static_cast<double>(batch.size()) / (seconds_now() - begin));
    }
  }
  double sum = 0.0;
  for (const double each : kolo::allgather(std::vector<double>{speed}).values) {
    sum += each;
    if (kolo::rank() == 0) std::printf("alone: %.0f examples/s\n", each);
  }
  return sum;
}

std::string joined(const std::vector<std::int64_t>& numbers) {
  std::string text;
  for (const std::int64_t number : numbers) text += " " + std::to_string(number);
  return text;
}

void train(int argc, char** argv) {
  const kolo::Session session(argc, argv);
  const int slow = argc > 1 ? std::atoi(argv[1]) : kolo::size() - 1;
  const std::int64_t epochs = argc > 2 ? std::atoi(argv[2]) : 5;
  const std::vector<Example> data = make_examples(examples);
  Trainer trainer{.is_slow = kolo::rank() == slow};
  const double sum_of_speeds = speed_of_all_alone(trainer, data);

  kolo::DistributedOptimizer optimizer(trainer);
  kolo::DistributedSampler sampler({.examples = examples, .seed = 42});
  kolo::BatchShares shares({.global_batch = global_batch});
  kolo::MetricAverage metrics({"loss"});
  while (sampler.epoch() < epochs) {
    const std::vector<std::int64_t> indices = sampler.indices(shares.all());
    std::span<const std::int64_t> left = indices;
    kolo::barrier();
    const double begin = seconds_now();
    while (sampler.steps_left(shares.all()) > 0) {
      const auto batch = left.first(std::min(left.size(), static_cast<std::size_t>(shares.own())));
      left = left.subspan(batch.size());
      const auto size =
          static_cast<std::int64_t>(batch.size());  // 0 on some ranks in the last step
      const double weight = sampler.weight(shares.all());
      const double loss = shares.time(size, [&] { return trainer.backward(data, batch, weight); });
      metrics.add("loss", loss, static_cast<double>(size));
      optimizer.step();
      sampler.advance(shares.all());
    }
    const double speed = static_cast<double>(examples) / (seconds_now() - begin);
    const double loss = metrics.over_all_ranks().at("loss");
    metrics.reset();
    if (kolo::rank() == 0)
      std::printf("epoch %lld: loss %.6f, shares%s: %.0f examples/s, %.1f %% of the sum\n",
                  static_cast<long long>(sampler.epoch() + 1), loss, joined(shares.all()).c_str(),
                  speed, 100.0 * speed / sum_of_speeds);
    shares.agree();
    sampler.begin_epoch(sampler.epoch() + 1);
  }
}

int main(int argc, char** argv) {
  try {
    train(argc, argv);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
