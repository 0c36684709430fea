// SPDX-License-Identifier: Apache-2.0
// The cost of all recording in a training step: the CIFAR-10 example's network and optimizer on
// generated images.
//
//   mpirun -np 2 bench-recording [--batch-size 64] [--steps 10] [--rounds 30] [--scratch /tmp]
//
// Each round has two sessions with the same steps: one that records nothing, and one with the
// flight recorder, the search for stragglers, statistics, and a status file under the directory
// --scratch, in turns as the first. The time of a block of steps is that of its slowest rank.
// Prints CSV: the number of ranks and rounds, the median milliseconds of a step without and with
// recording, and, in percent, how much longer the second takes: the median over the rounds, and the
// limits of its 95 % confidence interval.
#include <ATen/core/ivalue.h>
#include <torch/nn/functional/loss.h>
#include <torch/utils.h>

#include <cmath>
#include <cstdio>
#include <exception>
#include <kolo/torch.hpp>
#include <string>
#include <vector>

#include "blocks.hpp"
#include "network.hpp"

namespace {

constexpr int steps_to_warm_up = 4;

kolo::SessionOptions recording(bool on, const std::string& scratch) {
  kolo::SessionOptions options;
  options.flight_recorder_dir = "off";
  if (on) {
    options.flight_recorder = 4096;
    options.straggler_warning = 100;  // it searches, but does not interrupt the measurement
    options.status_file = scratch + "/kolo_recording_status.json";
    options.statistics = scratch + "/kolo_recording_statistics.%r.txt";
  } else {
    options.flight_recorder = 0;
    options.straggler_warning = 0;
  }
  return options;
}

struct Training {
  explicit Training(std::int64_t batch_size)
      : pixels(torch::rand({batch_size, 3, 32, 32})),
        labels(torch::randint(10, {batch_size}, torch::kLong)) {}

  /// Milliseconds of a step in a session of its own.
  double time(const kolo::SessionOptions& session_options, int steps) {
    const kolo::Session session(session_options);
    kolo::DistributedOptimizer<torch::optim::RMSprop> optimizer(
        cifar10::make_rmsprop(network, 1e-4), network->named_parameters());
    const auto step = [&] {
      optimizer.zero_grad();
      torch::nn::functional::cross_entropy(network->forward(pixels), labels).backward();
      optimizer.step();
    };
    (void)blocks::time_of(steps_to_warm_up, step);
    rank = kolo::rank();
    ranks = kolo::size();
    return blocks::time_of(steps, step) / steps;
  }

  cifar10::Network network = cifar10::make_network(1);
  torch::Tensor pixels;
  torch::Tensor labels;
  int rank = 0;
  int ranks = 0;
};

void measure(const blocks::Options& options) {
  Training training(options.batch_size);
  std::vector<double> times[2], longer;
  for (int round = -1; round < options.rounds; ++round) {
    double now[2] = {};
    for (std::size_t i = 0; i < 2; ++i) {
      const std::size_t kind = blocks::place(i, round + 1, 2);
      now[kind] = training.time(recording(kind == 1, options.text), options.steps);
    }
    if (round < 0) continue;  // warm-up
    for (std::size_t kind = 0; kind < 2; ++kind) times[kind].push_back(now[kind]);
    longer.push_back(100 * (now[1] / now[0] - 1));
  }
  if (training.rank != 0) return;
  std::ranges::sort(longer);
  // The interval between two order statistics, by the normal approximation of the binomial.
  const double count = static_cast<double>(longer.size());
  const auto at = [&](double place) {
    return longer[static_cast<std::size_t>(std::clamp(place, 0.0, count - 1))];
  };
  const double half = 0.98 * std::sqrt(count);
  std::printf("ranks,rounds,without_ms,with_ms,longer,from,to\n%d,%d,%.3f,%.3f,%.2f,%.2f,%.2f\n",
              training.ranks, options.rounds, blocks::median(times[0]), blocks::median(times[1]),
              blocks::median(longer), at(std::floor(count / 2 - half)),
              at(std::ceil(count / 2 + half)));
}

}  // namespace

int main(int argc, char** argv) {
  try {
    blocks::Options defaults{.rounds = 30};
    defaults.text = "/tmp";
    const blocks::Options options = blocks::read_options(argc, argv, "--scratch", defaults);
    torch::set_num_threads(1);
    measure(options);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench-recording: %s\n", error.what());
    return 1;
  }
}
