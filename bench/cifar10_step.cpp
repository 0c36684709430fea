// SPDX-License-Identifier: Apache-2.0
// The additional cost of a training step on several ranks: the CIFAR-10 example's network and
// optimizer on generated images, in one run.
//
//   mpirun -np 2 bench-cifar10-step [--batch-size 64] [--steps 10] [--rounds 10] [--timeline PATH]
//
// The program alternates four kinds of blocks: steps that reduce the gradients; steps without
// communication; steps that reduce only after backward, so that nothing overlaps; and steps that
// only end with a barrier, whose cost is the difference in speed between the ranks. With a path it
// also runs steps that reduce and write a timeline to that path (%r is replaced by the rank). The
// time of a block is that of its slowest rank. The last line tells how many control messages rank 0
// has sent and received in a step that reduces, and their bytes.
#include <ATen/core/ivalue.h>
#include <torch/nn/functional/loss.h>
#include <torch/utils.h>

#include <cstdio>
#include <exception>
#include <functional>
#include <kolo/torch.hpp>
#include <string>
#include <vector>

#include "blocks.hpp"
#include "network.hpp"

namespace {

struct Images {
  torch::Tensor pixels;
  torch::Tensor labels;
};

void backward(cifar10::Network& network, const Images& images) {
  torch::nn::functional::cross_entropy(network->forward(images.pixels), images.labels).backward();
}

template <typename Optimizer>
void step(cifar10::Network& network, Optimizer& optimizer, const Images& images) {
  optimizer.zero_grad();
  backward(network, images);
  optimizer.step();
}

/// One kind of step, and the times of its blocks.
struct Kind {
  const char* name;
  std::function<void()> step;
  std::size_t compared_with = 0;  // index of the kind to compare with
  std::string timeline{};
  std::vector<double> times{};
  std::vector<double> ratios{};
  std::vector<double> messages{};  // control messages of a step
  std::vector<double> message_bytes{};
};

/// The control messages of a block, with those of the barrier and the allreduce that time it.
struct Messages {
  kolo::Statistics before = kolo::statistics();

  void add_to(Kind& kind, int steps) const {
    const kolo::Statistics now = kolo::statistics();
    const auto count = [](const kolo::Statistics& at) {
      return at.messages_sent + at.messages_received;
    };
    const auto bytes = [](const kolo::Statistics& at) {
      return at.message_bytes_sent + at.message_bytes_received;
    };
    kind.messages.push_back(static_cast<double>(count(now) - count(before)) / steps);
    kind.message_bytes.push_back(static_cast<double>(bytes(now) - bytes(before)) / steps);
  }
};

/// The time of a block, in milliseconds. The timeline starts before the timed block and stops after
/// it.
double time_of(const Kind& kind, int steps) {
  if (!kind.timeline.empty()) kolo::start_timeline(kind.timeline);
  const double milliseconds = blocks::time_of(steps, kind.step);
  if (!kind.timeline.empty()) kolo::stop_timeline();
  return milliseconds;
}

void run_alternating(std::vector<Kind>& kinds, const blocks::Options& options) {
  std::vector<double> now(kinds.size());
  for (int round = -1; round < options.rounds; ++round) {
    for (std::size_t i = 0; i < kinds.size(); ++i) {
      const std::size_t kind = blocks::place(i, round + 1, kinds.size());
      const Messages messages;
      now[kind] = time_of(kinds[kind], options.steps);
      messages.add_to(kinds[kind], options.steps);
    }
    if (round < 0) continue;  // warm-up
    for (std::size_t i = 0; i < kinds.size(); ++i) {
      kinds[i].times.push_back(now[i] / options.steps);
      kinds[i].ratios.push_back(now[i] / now[kinds[i].compared_with]);
    }
  }
}

void print(const std::vector<Kind>& kinds, const blocks::Options& options) {
  std::printf("%d ranks, %lld images each, %d rounds of %d steps; medians\n", kolo::size(),
              static_cast<long long>(options.batch_size), options.rounds, options.steps);
  for (const Kind& kind : kinds)
    std::printf("%-26s %8.2f ms a step  %+5.1f %% of %s\n", kind.name, blocks::median(kind.times),
                100 * (blocks::median(kind.ratios) - 1), kinds[kind.compared_with].name);
  std::printf("%.1f control messages of %.0f B together\n", blocks::median(kinds[1].messages),
              blocks::median(kinds[1].message_bytes));
}

void measure(const blocks::Options& options) {
  const Images images{torch::rand({options.batch_size, 3, 32, 32}),
                      torch::randint(10, {options.batch_size}, torch::kLong)};
  cifar10::Network reduced = cifar10::make_network(1);
  cifar10::Network alone = cifar10::make_network(1);
  kolo::DistributedOptimizer<torch::optim::RMSprop> reducing(cifar10::make_rmsprop(reduced, 1e-4),
                                                             reduced->named_parameters());
  torch::optim::RMSprop plain = cifar10::make_rmsprop(alone, 1e-4);
  const auto reduce = [&] { step(reduced, reducing, images); };
  std::vector<Kind> kinds{{"without communication", [&] { step(alone, plain, images); }},
                          {"with Kolo", reduce},
                          {"with Kolo, after backward",
                           [&] {
                             reducing.zero_grad();
                             {
                               const kolo::NoSync local = reducing.no_sync();
                               backward(reduced, images);
                             }
                             reducing.step();
                           },
                           /*compared_with=*/1},
                          {"with a barrier", [&] {
                             step(alone, plain, images);
                             kolo::barrier({.name = "end of the step"});
                           }}};
  if (!options.text.empty()) kinds.push_back({"with Kolo and a timeline", reduce, 1, options.text});
  run_alternating(kinds, options);
  if (kolo::rank() == 0) print(kinds, options);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const blocks::Options options = blocks::read_options(argc, argv, "--timeline", {});
    torch::set_num_threads(1);
    const kolo::Session session(argc, argv);
    measure(options);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench-cifar10-step: %s\n", error.what());
    return 1;
  }
}
