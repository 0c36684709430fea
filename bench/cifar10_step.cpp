// What a training step costs more on several ranks than on one: the CIFAR-10 example's network and
// optimizer on made-up images, in one run.
//
//   mpirun -np 2 bench-cifar10-step [--batch-size 64] [--steps 10] [--rounds 10]
//
// Takes turns with blocks of steps that reduce the gradients, of steps on the same data that tell
// nobody anything, and of such that only end with a barrier: what that costs is lost to ranks that
// are not equally fast. A block takes as long as on its slowest rank.
#include <ATen/core/ivalue.h>

#include <torch/nn/functional/loss.h>
#include <torch/torch.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <functional>
#include <kolo/torch.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "network.hpp"

namespace {

struct Options {
  std::int64_t batch_size = 64;
  int steps = 10;
  int rounds = 10;
};

Options read_options(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; i += 2) {
    const std::string name = argv[i];
    if (i + 1 == argc) throw std::invalid_argument(name + " needs a value");
    const int value = std::stoi(argv[i + 1]);
    if (value < 1) throw std::invalid_argument(name + " must be at least 1");
    if (name == "--batch-size") {
      options.batch_size = value;
    } else if (name == "--steps") {
      options.steps = value;
    } else if (name == "--rounds") {
      options.rounds = value;
    } else {
      throw std::invalid_argument("unknown option " + name);
    }
  }
  return options;
}

struct Images {
  torch::Tensor pixels;
  torch::Tensor labels;
};

template <typename Optimizer>
void step(cifar10::Network& network, Optimizer& optimizer, const Images& images) {
  optimizer.zero_grad();
  torch::nn::functional::cross_entropy(network->forward(images.pixels), images.labels).backward();
  optimizer.step();
}

/// Of the slowest rank, in milliseconds.
double time_of(int steps, const std::function<void()>& step) {
  kolo::barrier();
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < steps; ++i) step();
  double milliseconds =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  kolo::allreduce(milliseconds, {.name = "milliseconds", .op = kolo::ReduceOp::max});
  return milliseconds;
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

void measure(const Options& options) {
  const Images images{torch::rand({options.batch_size, 3, 32, 32}),
                      torch::randint(10, {options.batch_size}, torch::kLong)};
  cifar10::Network reduced = cifar10::make_network(1);
  cifar10::Network alone = cifar10::make_network(1);
  kolo::DistributedOptimizer<torch::optim::RMSprop> reducing(cifar10::make_rmsprop(reduced, 1e-4),
                                                             reduced->named_parameters());
  torch::optim::RMSprop plain = cifar10::make_rmsprop(alone, 1e-4);
  const std::array<std::function<void()>, 3> kinds{[&] { step(alone, plain, images); },
                                                   [&] { step(reduced, reducing, images); },
                                                   [&] {
                                                     step(alone, plain, images);
                                                     kolo::barrier({.name = "end of the step"});
                                                   }};
  std::array<std::vector<double>, 3> times;
  std::array<std::vector<double>, 3> ratios;
  for (int round = -1; round < options.rounds; ++round) {
    std::array<double, 3> now{};
    for (std::size_t i = 0; i < kinds.size(); ++i) {
      const std::size_t kind = (i + static_cast<std::size_t>(round + 1)) % kinds.size();
      now[kind] = time_of(options.steps, kinds[kind]);
    }
    if (round < 0) continue;  // warm-up
    for (std::size_t kind = 0; kind < kinds.size(); ++kind) {
      times[kind].push_back(now[kind] / options.steps);
      ratios[kind].push_back(now[kind] / now[0]);
    }
  }
  if (kolo::rank() != 0) return;
  std::printf("%d ranks, %lld images each, %d rounds of %d steps; medians\n", kolo::size(),
              static_cast<long long>(options.batch_size), options.rounds, options.steps);
  const std::array<const char*, 3> names{"without communication", "with Kolo", "with a barrier"};
  for (std::size_t kind = 0; kind < kinds.size(); ++kind)
    std::printf("%-22s %8.2f ms a step  %+5.1f %%\n", names[kind], median(times[kind]),
                100 * (median(ratios[kind]) - 1));
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const Options options = read_options(argc, argv);
    torch::set_num_threads(1);
    const kolo::Session session(argc, argv);
    measure(options);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench-cifar10-step: %s\n", error.what());
    return 1;
  }
}
