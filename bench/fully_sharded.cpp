// SPDX-License-Identifier: Apache-2.0
// Memory and time of a step with replicated, sharded and fully sharded training: the GPT of
// examples/gpt with AdamW.
//
//   mpirun -np 2 bench-fully-sharded [--layers 8] [--width 512] [--context 64] [--batch-size 1]
//     [--steps 5] [--rounds 5] [--save FILE]
//
// Prints rows of fully_sharded.csv. Each round trains the same model with each optimizer in turn.
// The peak is that of LibTorch's tensors on the rank with most, with activations. The formula has
// parameters, gradients and AdamW's state, and for FullySharded also its units. The time of a step
// is the median over the rounds of each round's median, on the slowest rank; the ratio is the
// median over the rounds of the time divided by that of DistributedOptimizer in the same round.
// Then come the most resident memory of a process beyond that before the training, and the mean
// loss of the ranks after the last step. With --save, rank 0 writes the model before training as
// safetensors, for fsdp_step.py.
#include <kolo/torch.hpp>

// After kolo/torch.hpp, as clang 14 needs it.
#include <ATen/Parallel.h>
#include <malloc.h>
#include <torch/optim/adamw.h>
#include <torch/utils.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <fstream>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "model.hpp"
#include "tensor_memory.hpp"

namespace {

using torch::optim::AdamW;
using Model = kolo::Sharded<large::Gpt>;

struct Options {
  std::map<std::string, int> values{{"--layers", 8},     {"--width", 512}, {"--context", 64},
                                    {"--batch-size", 1}, {"--steps", 5},   {"--rounds", 5}};
  std::string save{};
  [[nodiscard]] int operator[](const std::string& name) const { return values.at(name); }
  [[nodiscard]] large::Shape shape() const {
    const std::int64_t width = values.at("--width");
    return {.layers = values.at("--layers"),
            .width = width,
            .heads = width / 64,
            .context = values.at("--context")};
  }
};

Options read_options(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; i += 2) {
    const std::string name = argv[i];
    if (name == "--save" && i + 1 < argc) {
      options.save = argv[i + 1];
      continue;
    }
    if (!options.values.contains(name)) throw std::invalid_argument("unknown option " + name);
    if (i + 1 == argc) throw std::invalid_argument(name + " needs a value");
    options.values[name] = std::stoi(argv[i + 1]);
    if (options[name] < 1) throw std::invalid_argument(name + " must be at least 1");
  }
  if (options["--width"] % 64 != 0)
    throw std::invalid_argument("--width must be a multiple of 64, the width of a head");
  return options;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

double largest_of_ranks(double value) {
  kolo::allreduce(value, {.name = "largest", .op = kolo::ReduceOp::max});
  return value;
}

/// Tokens that a formula gives, which fsdp_step.py has as well.
torch::Tensor make_tokens(const Options& options) {
  const std::int64_t windows = options["--batch-size"], length = options["--context"] + 1;
  const auto i = torch::arange(windows * length, torch::kLong);
  return (i * 7919 + i * i % 13 + 31 * kolo::rank()).remainder(256).view({windows, length});
}

/// A kilobyte count of /proc/self/status, in MB.
double status_mb(const std::string& name) {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;)
    if (double kilobytes = 0; word == name + ":" && status >> kilobytes)
      return kilobytes * 1.024e-3;
  return 0;
}

struct Training {
  double step_ms = 0;  // median; the first steps are not counted
  double loss = 0;     // mean of the ranks after the last step
};

template <typename Optimizer>
Training time_steps(const Options& options, Model& model, Optimizer& optimizer) {
  constexpr int warm_up = 3;
  const auto tokens = make_tokens(options);
  const auto inputs = tokens.narrow(1, 0, options["--context"]);
  const auto targets = tokens.narrow(1, 1, options["--context"]).flatten();
  std::vector<double> times;
  double loss = 0;
  for (int step = 0; step < warm_up + options["--steps"]; ++step) {
    kolo::barrier();
    const auto begin = std::chrono::steady_clock::now();
    optimizer.zero_grad();
    const auto error = torch::cross_entropy_loss(model->forward(inputs).flatten(0, 1), targets);
    error.backward();
    optimizer.step();
    const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - begin;
    const double slowest = largest_of_ranks(time.count());
    if (step >= warm_up) times.push_back(slowest);
    loss = error.item<double>();
  }
  kolo::allreduce(loss, {.name = "loss"});
  return {median(times), loss};
}

Training train_replicated(const Options& options) {
  Model model(options.shape());
  kolo::DistributedOptimizer optimizer(AdamW(model->parameters(), 1e-4), model->named_parameters());
  return time_steps(options, model, optimizer);
}

Training train_sharded(const Options& options) {
  Model model(options.shape());
  kolo::ShardedOptimizer optimizer(AdamW(model->parameters(), 1e-4), model->named_parameters());
  return time_steps(options, model, optimizer);
}

Training train_fully_sharded(const Options& options, const kolo::FullyShardedOptions& how) {
  Model model = [&] {
    const kolo::ConstructSharded guard;
    return Model(options.shape());
  }();
  const kolo::FullySharded sharded(model, how);
  AdamW optimizer(sharded.parameters(), 1e-4);
  return time_steps(options, model, optimizer);
}

struct Kind {
  const char* name;
  std::function<Training(const Options&)> train;
  double bytes;  // by formula
  double peak = 0.0;
  double resident_mb = 0.0;
  double loss = 0.0;
  std::vector<double> times{};
};

std::vector<Kind> make_kinds(const Options& options) {
  torch::manual_seed(1);
  const Model model(options.shape());
  if (!options.save.empty() && kolo::rank() == 0) kolo::save_safetensors(options.save, *model);
  double all = 0;
  double unit = 0;
  for (const auto& item : model->named_parameters()) {
    const auto bytes = static_cast<double>(item.value().nbytes());
    all += bytes;
    if (item.key().starts_with("blocks.0.")) unit += bytes;
  }
  const double root = all - options["--layers"] * unit;
  const double n = kolo::size();
  const double full = 4 * all / n + 4 * unit + 2 * unit / n + 2 * root;
  return {
      {"DistributedOptimizer", train_replicated, 4 * all},
      {"ShardedOptimizer", train_sharded, all + 3 * all / n},
      {"FullySharded", [](const Options& given) { return train_fully_sharded(given, {}); }, full},
      {"FullySharded with units_ahead = 0",
       [](const Options& given) { return train_fully_sharded(given, {.units_ahead = 0}); },
       full - unit}};
}

void measure(Kind& kind, const Options& options) {
  torch::manual_seed(1);
  malloc_trim(0);
  std::ofstream("/proc/self/clear_refs") << 5;  // sets the peak to the present
  const double before = status_mb("VmHWM");
  Training training;
  const std::int64_t peak = TensorMemory::peak_of([&] { training = kind.train(options); });
  kind.times.push_back(training.step_ms);
  kind.loss = training.loss;
  kind.peak = std::max(kind.peak, largest_of_ranks(static_cast<double>(peak)));
  kind.resident_mb = std::max(kind.resident_mb, largest_of_ranks(status_mb("VmHWM") - before));
}

void run(const Options& options) {
  at::set_num_threads(1);
  std::vector<Kind> kinds = make_kinds(options);
  for (int round = 0; round < options["--rounds"]; ++round)
    for (Kind& kind : kinds) measure(kind, options);
  if (kolo::rank() != 0) return;
  for (const Kind& kind : kinds) {
    std::vector<double> ratios;
    for (std::size_t i = 0; i < kind.times.size(); ++i)
      ratios.push_back(kind.times[i] / kinds.front().times[i]);
    std::printf("%d,%s,%.0f,%.0f,%.0f,%.2f,%.0f,%.6f\n", kolo::size(), kind.name, kind.bytes * 1e-6,
                kind.peak * 1e-6, median(kind.times), median(ratios), kind.resident_mb, kind.loss);
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const Options options = read_options(argc, argv);
    TensorMemory::count();
    const kolo::Session session(argc, argv);
    run(options);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench-fully-sharded: %s\n", error.what());
    return 1;
  }
}
