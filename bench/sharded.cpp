// SPDX-License-Identifier: Apache-2.0
// Memory and time of Adam with replicated and with sharded state: 25 million f32 parameters in 25
// layers.
//
//   mpirun -np 2 bench-sharded [--layers 25] [--width 1000] [--batch-size 8] [--steps 10]
//
// Memory is that of rank 0's process beyond its size before the optimizer was created: after a
// backward pass, and the peak during the steps. Shared memory is not counted. For comparison, the
// output has the bytes that the formula gives for the state and the gradients. The time of a step
// is the median of forward, backward and step on the slowest rank.
#include <ATen/core/ivalue.h>
#include <malloc.h>
#include <torch/nn/module.h>
#include <torch/types.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <fstream>
#include <kolo/torch.hpp>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

namespace optim = torch::optim;

struct Options {
  int layers = 25;
  int width = 1000;
  int batch_size = 8;
  int steps = 10;
};

Options read_options(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; i += 2) {
    const std::string name = argv[i];
    if (i + 1 == argc) throw std::invalid_argument(name + " needs a value");
    int& value = name == "--layers"       ? options.layers
                 : name == "--width"      ? options.width
                 : name == "--batch-size" ? options.batch_size
                 : name == "--steps"      ? options.steps
                                          : throw std::invalid_argument("unknown option " + name);
    value = std::stoi(argv[i + 1]);
    if (value < 1) throw std::invalid_argument(name + " must be at least 1");
  }
  return options;
}

struct Layers : torch::nn::Module {
  explicit Layers(const Options& options) {
    for (int i = 0; i < options.layers; ++i)
      weights.push_back(register_parameter("weight" + std::to_string(i),
                                           torch::randn({options.width, options.width}) * 0.03));
  }

  torch::Tensor loss(const torch::Tensor& input) {
    torch::Tensor hidden = input;
    for (const torch::Tensor& weight : weights) hidden = torch::tanh(torch::mm(hidden, weight));
    return hidden.pow(2).mean();
  }

  std::vector<torch::Tensor> weights;
};

/// The resident memory of this process in bytes, without shared memory.
std::int64_t resident() {
  std::ifstream file("/proc/self/statm");
  std::int64_t size = 0;
  std::int64_t pages = 0;
  std::int64_t shared = 0;
  file >> size >> pages >> shared;
  return (pages - shared) * 4096;
}

/// The peak of the resident memory since the last call, with shared memory.
std::int64_t peak_and_reset() {
  std::int64_t kilobytes = 0;
  std::ifstream file("/proc/self/status");
  for (std::string word; file >> word;)
    if (word == "VmHWM:") file >> kilobytes;
  std::ofstream("/proc/self/clear_refs") << 5;
  return kilobytes * 1024;
}

struct Result {
  std::int64_t held = 0;
  std::int64_t peak = 0;
  double milliseconds = 0.0;
};

template <typename MakeOptimizer>
Result measure(const Options& options, const MakeOptimizer& make) {
  torch::manual_seed(1);
  Layers model(options);
  kolo::broadcast_parameters(model, 0);
  const torch::Tensor input = torch::randn({options.batch_size, options.width});
  {
    const torch::NoGradGuard no_grad;
    (void)model.loss(input);
  }
  malloc_trim(0);
  const std::int64_t before = resident();
  (void)peak_and_reset();
  const std::int64_t shared_before = peak_and_reset() - before;
  Result result;
  auto optimizer = make(model);
  std::vector<double> times;
  for (int step = 0; step <= options.steps; ++step) {
    kolo::barrier();
    const auto begin = std::chrono::steady_clock::now();
    optimizer.zero_grad();
    model.loss(input).backward();
    if (step == options.steps) {
      malloc_trim(0);
      result.held = resident() - before;
    }
    optimizer.step();
    double time =
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
    kolo::allreduce(time, {.name = "milliseconds", .op = kolo::ReduceOp::max});
    if (step > 0 && step < options.steps) times.push_back(time);
  }
  result.peak = peak_and_reset() - shared_before - before;
  std::sort(times.begin(), times.end());
  result.milliseconds = times.empty() ? 0.0 : times[times.size() / 2];
  return result;
}

void run(const Options& options) {
  mallopt(M_MMAP_THRESHOLD, 1 << 20);  // so that freed tensors leave the process
  at::set_num_threads(1);
  const double megabytes = 1e-6;
  const double parameters =
      static_cast<double>(options.layers) * options.width * options.width * megabytes;
  const auto print = [&](const char* name, double bytes_each, const Result& result) {
    if (kolo::rank() != 0) return;
    std::printf("%-28s %8.0f %8.0f %8.0f %9.1f\n", name, bytes_each * parameters,
                static_cast<double>(result.held) * megabytes,
                static_cast<double>(result.peak) * megabytes, result.milliseconds);
    std::fflush(stdout);
  };
  const auto adam = [](Layers& model) { return optim::Adam(model.parameters(), 1e-4); };
  const double n = kolo::size();
  if (kolo::rank() == 0)
    std::printf("%d ranks, %.0f million parameters; MB\n%-28s %8s %8s %8s %9s\n", kolo::size(),
                parameters, "", "formula", "held", "peak", "ms/step");
  print("DistributedOptimizer", 12.0, measure(options, [&](Layers& model) {
          return kolo::DistributedOptimizer(adam(model), model.named_parameters());
        }));
  for (const auto sharding : {kolo::Sharding::state, kolo::Sharding::state_and_gradients}) {
    const bool is_state = sharding == kolo::Sharding::state;
    print(is_state ? "Sharding::state" : "Sharding::state_and_gradients",
          is_state ? 4.0 + 8.0 / n : 12.0 / n, measure(options, [&](Layers& model) {
            return kolo::ShardedOptimizer(adam(model), model.named_parameters(), {}, sharding);
          }));
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const Options options = read_options(argc, argv);
    const kolo::Session session(argc, argv);
    run(options);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench-sharded: %s\n", error.what());
    return 1;
  }
}
