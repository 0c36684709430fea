// SPDX-License-Identifier: Apache-2.0
#include "benchmark.hpp"

#include <kolo/torch.hpp>  // before LibTorch, as clang 14 needs it

#include <ATen/Parallel.h>
#include <torch/cuda.h>
#include <torch/optim/sgd.h>

#include <chrono>
#include <functional>
#include <memory>
#include <utility>

#include "device.hpp"
#include "models.hpp"
#include "report.hpp"

namespace benchmark {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

torch::nn::Sequential model_on(torch::Device device, const std::string& name) {
  torch::manual_seed(0);
  torch::nn::Sequential model = make_model(name);
  model->to(device);
  return model;
}

torch::optim::SGD make_sgd(torch::nn::Sequential& model) {
  return torch::optim::SGD(model->parameters(), torch::optim::SGDOptions(0.01));
}

// A model and its optimizer, with or without Kolo.
template <typename Optimizer>
class Training {
 public:
  template <typename MakeOptimizer>
  Training(const Options& options, const MakeOptimizer& make_optimizer)
      : batch_size_(options.batch_size),
        device_(examples::device_of(options.device)),
        model_(model_on(device_, options.model)),
        images_(torch::randn({options.batch_size, 3, options.image_size, options.image_size})
                    .to(device_)),
        labels_(torch::randint(classes, {options.batch_size}, torch::kLong).to(device_)),
        optimizer_(make_optimizer(model_)) {}

  [[nodiscard]] torch::nn::Sequential& model() { return model_; }
  [[nodiscard]] bool on_gpu() const { return device_.is_cuda(); }
  [[nodiscard]] double last_loss() const { return loss_.template item<double>(); }

  // Trains on `batches` batches and returns images per second. Calls `after_step` after each batch
  // with the images per second of that batch.
  double rate(
      int batches, const std::function<void(double)>& after_step = [](double) {}) {
    const auto images = static_cast<double>(batch_size_);
    const Clock::time_point start = Clock::now();
    for (int batch = 0; batch < batches; ++batch) {
      const Clock::time_point step_start = Clock::now();
      step();
      after_step(images / seconds_since(step_start));
    }
    if (on_gpu()) torch::cuda::synchronize(device_.index());
    return images * batches / seconds_since(start);
  }

 private:
  void step() {
    optimizer_.zero_grad();
    loss_ = torch::cross_entropy_loss(model_->forward(images_), labels_);
    loss_.backward();
    optimizer_.step();
  }

  std::int64_t batch_size_;
  torch::Device device_;
  torch::nn::Sequential model_;
  torch::Tensor images_, labels_, loss_;
  Optimizer optimizer_;
};

using Alone = Training<torch::optim::SGD>;
using Together = Training<kolo::DistributedOptimizer<torch::optim::SGD>>;

kolo::Compression compression_of(const Options& options) {
  if (options.fp16) return kolo::Compression::fp16;
  return options.bf16 ? kolo::Compression::bf16 : kolo::Compression::none;
}

Together make_together(const Options& options) {
  // KOLO: the optimizer averages gradients, and all ranks start from rank 0's parameters.
  Together training(options, [&](torch::nn::Sequential& model) {
    return kolo::DistributedOptimizer(make_sgd(model), model->named_parameters(),
                                      {.compression = compression_of(options)});
  });
  kolo::broadcast_parameters(*training.model(), /*root=*/0);
  return training;
}

// The reference: the same training without Kolo.
class Comparison {
 public:
  explicit Comparison(const Options& options)
      : batches_(options.batches_per_iteration), training_(options, make_sgd) {
    training_.rate(options.warmup_batches);
  }

  void measure(Measurement& results) {
    kolo::barrier();
    if (kolo::rank() == 0) results.one_alone.push_back(training_.rate(batches_));
    kolo::barrier();
    results.side_by_side.push_back(training_.rate(batches_));
    kolo::barrier();
  }

 private:
  int batches_;
  Alone training_;
};

std::int64_t count_parameters(torch::nn::Sequential& model) {
  std::int64_t count = 0;
  for (const torch::Tensor& parameter : model->parameters()) count += parameter.numel();
  return count;
}

}  // namespace

Measurement measure(const Options& options) {
  if (options.threads > 0) at::set_num_threads(options.threads);
  Together training = make_together(options);
  Measurement results;
  results.device = training.on_gpu() ? "GPU" : "CPU";
  results.parameters = count_parameters(training.model());
  LiveReport report(options, results);
  training.rate(options.warmup_batches);
  std::unique_ptr<Comparison> comparison;
  if (options.scaling_efficiency) comparison = std::make_unique<Comparison>(options);
  report.begin();

  for (int i = 0; i < options.iterations; ++i) {
    if (comparison) comparison->measure(results);
    results.this_rank.push_back(training.rate(options.batches_per_iteration, [&](double speed) {
      results.steps.push_back(speed);
      report.step([&] { return training.last_loss(); });
    }));
    report.iteration(i);
  }
  // KOLO: sums the ranks' rates of each iteration.
  results.all_ranks = results.this_rank;
  kolo::allreduce(results.all_ranks, {.op = kolo::ReduceOp::sum});
  if (comparison) kolo::allreduce(results.side_by_side, {.op = kolo::ReduceOp::sum});
  return results;
}

}  // namespace benchmark
