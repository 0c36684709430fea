// SPDX-License-Identifier: Apache-2.0
// Trains a GPT whose parameters, gradients and optimizer state are divided among the ranks:
//
//     mpirun -np 4 gpt --steps 20 --save gpt.safetensors
//
// The lines that use Kolo are marked KOLO.
#include <kolo/torch.hpp>

// After kolo/torch.hpp, as clang 14 needs it.
#include <ATen/Parallel.h>
#include <malloc.h>
#include <sys/resource.h>
#include <torch/optim/adamw.h>
#include <torch/utils.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "options.hpp"
#include "program.hpp"
#include "text.hpp"

namespace {

using large::Options;
using torch::optim::AdamW;
using Model = kolo::Sharded<large::Gpt>;  // KOLO: the root unit, in place of large::Gpt

/// This rank's windows of the text, step by step.
class Batches {
 public:
  Batches(const Options& options, std::span<const char> text)
      : context_(options.shape.context),
        batch_size_(options.batch_size),
        windows_(text, static_cast<std::size_t>(context_)),
        sampler_({.examples = windows_.count(), .seed = options.seed}) {  // KOLO
    if (sampler_.steps_left(batch_size_) == 0) throw std::runtime_error("the text is too short");
  }

  /// The mean loss of the next windows.
  torch::Tensor loss(Model& model) {
    const gpt::Batch batch = windows_.batch(next());
    const auto tensor = [&](const std::vector<std::uint8_t>& bytes) {
      return torch::tensor(std::vector<std::int64_t>(bytes.begin(), bytes.end()))
          .reshape({static_cast<std::int64_t>(batch.sequences), context_});
    };
    const torch::Tensor scores = model->forward(tensor(batch.inputs));
    return torch::cross_entropy_loss(scores.flatten(0, 1), tensor(batch.targets).flatten());
  }

 private:
  std::vector<std::int64_t> next() {
    if (sampler_.steps_left(batch_size_) == 0) sampler_.begin_epoch(sampler_.epoch() + 1);
    std::vector<std::int64_t> windows = sampler_.indices();
    windows.resize(std::min(windows.size(), static_cast<std::size_t>(batch_size_)));
    sampler_.advance(batch_size_);
    return windows;
  }

  std::int64_t context_;
  std::int64_t batch_size_;
  gpt::Windows windows_;
  kolo::DistributedSampler sampler_;  // KOLO
};

/// The largest resident memory of a rank so far, in MB.
double peak_megabytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  auto kilobytes = static_cast<double>(usage.ru_maxrss);
  kolo::allreduce(kilobytes, {.name = "peak", .op = kolo::ReduceOp::max});  // KOLO
  return kilobytes * 1024e-6;
}

template <typename Optimizer>
void run_steps(const Options& options, Model& model, Optimizer& optimizer, Batches& batches) {
  for (std::int64_t step = 1; step <= options.steps; ++step) {
    const auto begin = std::chrono::steady_clock::now();
    optimizer.zero_grad();
    const torch::Tensor loss = batches.loss(model);
    loss.backward();
    if (options.clip > 0) kolo::clip_grad_norm(optimizer, options.clip);  // KOLO: of all shards
    optimizer.step();
    const double mean = kolo::average(loss.item<double>());  // KOLO
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    if (kolo::rank() == 0)
      std::printf("step %lld: loss %.9f, %.2f s\n", static_cast<long long>(step), mean,
                  seconds.count());
    std::fflush(stdout);
  }
}

void save(const Options& options, const kolo::StateDict& state) {
  if (!options.save.empty() && kolo::rank() == 0)
    kolo::save_safetensors(options.save, state.views(), state.metadata);
}

// Each rank holds the whole model, and the state of AdamW.
void train_whole(const Options& options, Batches& batches) {
  Model model(options.shape);
  if (!options.load.empty()) kolo::load_state(*model, kolo::load_safetensors(options.load));
  kolo::broadcast_parameters(*model, /*root=*/0);
  kolo::DistributedOptimizer optimizer(AdamW(model->parameters(), options.learning_rate),
                                       model->named_parameters());
  run_steps(options, model, optimizer, batches);
  if (!options.save.empty()) save(options, kolo::state(*model));
}

// KOLO: each rank holds its shards, and beside them the blocks that are computing.
void train_sharded(const Options& options, Batches& batches) {
  Model model = [&] {
    const kolo::ConstructSharded guard;
    return Model(options.shape);
  }();
  kolo::FullySharded sharded(model, {.units_ahead = options.units_ahead});
  if (!options.load.empty()) sharded.load_full_state(kolo::load_safetensors(options.load));
  AdamW optimizer(sharded.parameters(), options.learning_rate);
  run_steps(options, model, optimizer, batches);
  if (!options.save.empty()) save(options, sharded.full_state(/*root=*/0));
}

// KOLO: only rank 0 needs the file.
std::string load_text(const Options& options) {
  std::string text;
  kolo::on_one_rank(/*root=*/0, [&] {
    text = options.text.empty() ? gpt::generate_text(options.text_size, options.seed)
                                : gpt::read_text(options.text);
  });
  kolo::broadcast(text, /*root=*/0);
  return text;
}

void train(const Options& options) {
  at::set_num_threads(options.threads);
  const std::string text = load_text(options);
  Batches batches(options, text);
  torch::manual_seed(options.seed);  // equal on all ranks: their shards are those of one model
  if (options.sharding == large::Kind::full)
    train_sharded(options, batches);
  else
    train_whole(options, batches);
  const double peak = peak_megabytes();
  if (kolo::rank() == 0) std::printf("peak memory of a rank: %.0f MB\n", peak);
}

}  // namespace

int main(int argc, char** argv) {
  mallopt(M_MMAP_THRESHOLD, 1 << 20);  // so that the memory of freed units leaves the process
  return examples::run(argc, argv, [&] {
    if (const auto options = large::parse_options(argc, argv)) train(*options);
  });
}
