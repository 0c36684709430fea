// SPDX-License-Identifier: Apache-2.0
// A training step with each compression of gradients: the CIFAR-10 example's network and optimizer
// on generated images, in one run.
//
//   mpirun -np 2 bench-compression [--batch-size 32] [--steps 5] [--rounds 10] [--interface NAME]
//
// The program alternates blocks of steps, one block for each compression and one without
// communication. For each it prints a line of CSV: the name, the median time of a step in
// milliseconds, and the bytes that rank 0's host sends through the interface per step, or nothing
// without an interface. The bytes include the two barriers and the small allreduce of a block. The
// time of a block is that of its slowest rank.
#include <ATen/core/ivalue.h>
#include <torch/nn/functional/loss.h>
#include <torch/utils.h>

#include <cstdint>
#include <cstdio>
#include <exception>
#include <fstream>
#include <iterator>
#include <kolo/torch.hpp>
#include <memory>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "blocks.hpp"
#include "network.hpp"

namespace {

struct Images {
  torch::Tensor pixels;
  torch::Tensor labels;
};

/// One kind of steps: its own network and optimizer, and the times of its blocks.
class Kind {
 public:
  Kind(std::string called, const kolo::DistributedOptimizerOptions& options)
      : name(std::move(called)),
        optimizer_(std::make_unique<kolo::DistributedOptimizer<torch::optim::RMSprop>>(
            cifar10::make_rmsprop(network_, 1e-4), network_->named_parameters(), options)) {}

  /// Does not communicate if `alone`.
  void step(const Images& images, bool alone) {
    std::optional<kolo::NoSync> local;
    if (alone) local.emplace(optimizer_->no_sync());
    optimizer_->zero_grad();
    const torch::Tensor logits = network_->forward(images.pixels);
    torch::nn::functional::cross_entropy(logits, images.labels).backward();
    if (alone) {
      optimizer_->RMSprop::step();
    } else {
      optimizer_->step();
    }
  }

  std::string name;
  std::vector<double> milliseconds{};  // time per step of each block
  std::vector<double> bytes{};         // bytes sent per step of each block

 private:
  cifar10::Network network_ = cifar10::make_network(1);
  std::unique_ptr<kolo::DistributedOptimizer<torch::optim::RMSprop>> optimizer_;
};

/// The bytes that this host has sent through the interface since its start; 0 without an interface.
double bytes_sent(const std::string& interface) {
  if (interface.empty()) return 0.0;
  std::ifstream file("/proc/self/net/dev");
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const std::size_t begin = line.find_first_not_of(' ');
    if (line.substr(begin, colon - begin) != interface) continue;
    std::istringstream fields(line.substr(colon + 1));
    const std::vector<double> numbers{std::istream_iterator<double>(fields), {}};
    return numbers.at(8);
  }
  throw std::runtime_error("there is no interface '" + interface + "'");
}

void measure_block(Kind& kind, const Images& images, const blocks::Options& options, bool alone,
                   bool counts) {
  kolo::barrier();
  const double bytes = bytes_sent(options.text);
  const double milliseconds = blocks::time_of(options.steps, [&] { kind.step(images, alone); });
  const double sent = bytes_sent(options.text) - bytes;
  if (!counts) return;
  kind.milliseconds.push_back(milliseconds / options.steps);
  kind.bytes.push_back(sent / options.steps);
}

void measure(const blocks::Options& options) {
  const Images images{torch::rand({options.batch_size, 3, 32, 32}),
                      torch::randint(10, {options.batch_size}, torch::kLong)};
  std::vector<Kind> kinds;
  kinds.emplace_back("alone", kolo::DistributedOptimizerOptions{});
  kinds.emplace_back("none", kolo::DistributedOptimizerOptions{});
  kinds.emplace_back("bf16",
                     kolo::DistributedOptimizerOptions{.compression = kolo::Compression::bf16});
  kinds.emplace_back("int8", kolo::DistributedOptimizerOptions{.hook = kolo::int8()});
  kinds.emplace_back("power-sgd", kolo::DistributedOptimizerOptions{.hook = kolo::power_sgd()});
  for (int round = -1; round < options.rounds; ++round)  // the first is a warm-up
    for (std::size_t i = 0; i < kinds.size(); ++i) {
      const std::size_t kind = blocks::place(i, round + 1, kinds.size());
      measure_block(kinds[kind], images, options, /*alone=*/kind == 0, /*counts=*/round >= 0);
    }
  if (kolo::rank() != 0) return;
  for (const Kind& kind : kinds) {
    std::printf("%s,%.2f,", kind.name.c_str(), blocks::median(kind.milliseconds));
    if (!options.text.empty()) std::printf("%.0f", blocks::median(kind.bytes));
    std::printf("\n");
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const blocks::Options options =
        blocks::read_options(argc, argv, "--interface", {.batch_size = 32, .steps = 5});
    torch::set_num_threads(1);
    const kolo::Session session(argc, argv);
    measure(options);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench-compression: %s\n", error.what());
    return 1;
  }
}
