// SPDX-License-Identifier: Apache-2.0
// Small trainings whose ranks must end with the model of one process that trains on the union of
// their data. That process computes on the CPU in f64, so the comparison has tolerances.
//
// Usage: mpirun -np N gpu_trainings [cpu|cuda]
#include <kolo/torch.hpp>  // before LibTorch, as clang 14 needs it

#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "gpu_graph.hpp"

namespace {

using ::torch::Tensor;
using ::torch::nn::Sequential;

constexpr int features = 12;
constexpr int classes = 3;
constexpr double max_norm = 0.05;

/// How a training differs from the plain one.
struct Plan {
  const char* name;
  double tolerance = 1e-5;
  kolo::DistributedOptimizerOptions options{};
  int passes = 1;  // backward passes per step
  bool clips = false;
  bool uneven = false;  // later ranks have more steps, and the others join
  double momentum = 0.9;
};

Sequential make_model() {
  ::torch::manual_seed(3);
  // Gradients that begin at odd places of a batch, and one of 16 MB. Smooth, so that rounding
  // changes no branch.
  return Sequential(::torch::nn::Linear(features, 41), ::torch::nn::Tanh(),
                    ::torch::nn::Linear(41, 2053), ::torch::nn::Tanh(),
                    ::torch::nn::Linear(2053, 2051), ::torch::nn::Tanh(),
                    ::torch::nn::Linear(2051, classes));
}

/// The same in units, with the same initial values.
struct UnitsImpl : ::torch::nn::Module {
  UnitsImpl() {
    const ::torch::NoGradGuard no_gradients;
    const std::vector<Tensor> initial = make_model()->parameters();
    for (std::size_t i = 0; i < initial.size(); i += 2) {
      kolo::Sharded<::torch::nn::Linear> layer(initial[i].size(1), initial[i].size(0));
      layer->weight.copy_(initial[i]);
      layer->bias.copy_(initial[i + 1]);
      layers.push_back(register_module("layer" + std::to_string(i / 2), layer));
    }
  }
  Tensor forward(Tensor x) {
    for (auto& layer : layers) x = layer->forward(&layer == layers.data() ? x : x.tanh());
    return x;
  }
  std::vector<kolo::Sharded<::torch::nn::Linear>> layers{};
};
TORCH_MODULE(Units);

int steps_of(const Plan& plan, int rank) { return plan.uneven ? 3 + rank : 4; }

/// The inputs of one pass of one rank, in f64 on the CPU.
Tensor inputs(int rank, int step, int pass) {
  ::torch::manual_seed(static_cast<std::uint64_t>(1000 * rank + 10 * step + pass));
  return ::torch::randn({16, features}, ::torch::kFloat64)
      .to(::torch::kFloat32)
      .to(::torch::kFloat64);
}

template <typename Model>
Tensor loss_of(Model& model, const Tensor& x, ::torch::Dtype compute = ::torch::kFloat32) {
  const Tensor y = x.slice(1, 0, classes).argmax(1);
  const Tensor input = x.scalar_type() == ::torch::kFloat64 ? x : x.to(compute);
  return ::torch::nn::functional::cross_entropy(model->forward(input).to(x.scalar_type()), y);
}

/// Trains on the data of all ranks.
std::vector<Tensor> train_alone(const Plan& plan, bool adamw) {
  Sequential model = make_model();
  model->to(::torch::kFloat64);
  const auto train = [&](auto optimizer) {
    for (int step = 0; step < steps_of(plan, kolo::size() - 1); ++step) {
      optimizer.zero_grad();
      for (int rank = 0; rank < kolo::size(); ++rank)
        for (int pass = 0; step < steps_of(plan, rank) && pass < plan.passes; ++pass)
          (loss_of(model, inputs(rank, step, pass)) / kolo::size()).backward();
      if (plan.clips) ::torch::nn::utils::clip_grad_norm_(model->parameters(), max_norm);
      optimizer.step();
    }
  };
  if (adamw)
    train(::torch::optim::AdamW(model->parameters(), 0.01));
  else
    train(::torch::optim::SGD(model->parameters(),
                              ::torch::optim::SGDOptions(0.05).momentum(plan.momentum)));
  return model->parameters();
}

template <typename Optimizer>
void train(const Plan& plan, Sequential& model, Optimizer& optimizer,
           const ::torch::Device& device) {
  for (int step = 0; step < steps_of(plan, kolo::rank()); ++step) {
    optimizer.zero_grad();
    for (int pass = 0; pass < plan.passes; ++pass)
      loss_of(model, inputs(kolo::rank(), step, pass).to(device, ::torch::kFloat32)).backward();
    if (plan.clips) kolo::clip_grad_norm(optimizer, max_norm);
    optimizer.step();
  }
  if (plan.uneven) kolo::broadcast_parameters(*model, kolo::join());
}

bool report(const std::string& name, double tolerance, const std::vector<Tensor>& found,
            const std::vector<Tensor>& expected) {
  double worst = 0;
  for (std::size_t i = 0; i < found.size(); ++i)
    worst = std::max(worst,
                     (found[i].detach().to(::torch::kCPU, ::torch::kFloat64) - expected[i].detach())
                         .abs()
                         .max()
                         .item<double>());
  const bool good = worst <= tolerance;  // false for NaN
  std::printf("rank %d: %s: %s (%.1e apart, at most %.1e)\n", kolo::rank(), name.c_str(),
              good ? "as one process" : "WRONG", worst, tolerance);
  return good;
}

bool train_distributed(const Plan& plan, const ::torch::Device& device) {
  Sequential model = make_model();
  model->to(device);
  auto options = plan.options;
  options.backward_passes_per_step = plan.passes;
  kolo::DistributedOptimizer optimizer(
      ::torch::optim::SGD(model->parameters(),
                          ::torch::optim::SGDOptions(0.05).momentum(plan.momentum)),
      model->named_parameters(), options);
  train(plan, model, optimizer, device);
  return report(plan.name, plan.tolerance, model->parameters(), train_alone(plan, false));
}

bool train_sharded(const char* name, kolo::Sharding sharding, const ::torch::Device& device) {
  const Plan plan{.name = name, .tolerance = 5e-4, .clips = true};
  Sequential model = make_model();
  model->to(device);
  kolo::ShardedOptimizer optimizer(::torch::optim::AdamW(model->parameters(), 0.01),
                                   model->named_parameters(), {}, sharding);
  train(plan, model, optimizer, device);
  return report(name, plan.tolerance, model->parameters(), train_alone(plan, true));
}

template <typename Optimizer, typename Settings>
bool train_fully_sharded(const Plan& plan, const Settings& settings,
                         const kolo::FullyShardedOptions& options, const ::torch::Device& device) {
  kolo::Sharded<Units> model;
  model->to(device);
  kolo::FullySharded sharded(model, options);
  Optimizer optimizer(sharded.parameters(), settings);
  for (int step = 0; step < steps_of(plan, kolo::rank()); ++step) {
    sharded.zero_grad();
    for (int pass = 0; pass < plan.passes; ++pass)
      loss_of(model, inputs(kolo::rank(), step, pass).to(device, ::torch::kFloat32),
              options.compute.value_or(::torch::kFloat32))
          .backward();
    if (plan.clips) kolo::clip_grad_norm(optimizer, max_norm);
    optimizer.step();
  }
  const auto whole = sharded.gather();
  return report(plan.name, plan.tolerance, model->parameters(),
                train_alone(plan, std::is_same_v<Optimizer, ::torch::optim::AdamW>));
}

/// Replays one step. The runs before the capture have changed the model, so it begins anew.
bool train_captured(const ::torch::Device& device) {
  const Plan plan{.name = "captured", .momentum = 0};
  Sequential model = make_model();
  model->to(device);
  kolo::DistributedOptimizer optimizer(
      ::torch::optim::SGD(model->parameters(), ::torch::optim::SGDOptions(0.05)),
      model->named_parameters());
  const Tensor x = ::torch::ones({16, features}, device);
  const auto replay = graphs::capture(
      device, [&] { optimizer.zero_grad(); },
      [&] {
        loss_of(model, x).backward();
        optimizer.step();
      });
  {
    const ::torch::NoGradGuard no_gradients;
    Sequential fresh = make_model();
    for (std::size_t i = 0; i < fresh->parameters().size(); ++i)
      model->parameters()[i].copy_(fresh->parameters()[i]);
    for (int step = 0; step < steps_of(plan, kolo::rank()); ++step) {
      Tensor(x).copy_(inputs(kolo::rank(), step, 0));
      replay();
    }
  }
  return report(plan.name, plan.tolerance, model->parameters(), train_alone(plan, false));
}

bool train_all_fully_sharded(const ::torch::Device& device) {
  const Plan plan{.name = "fully sharded", .tolerance = 5e-4, .passes = 2, .clips = true};
  const Plan in_bf16{.name = "fully sharded, in bf16", .tolerance = 3e-3};
  const auto sgd = ::torch::optim::SGDOptions(0.05).momentum(in_bf16.momentum);
  const bool good = train_fully_sharded<::torch::optim::AdamW>(plan, 0.01, {}, device);
  return train_fully_sharded<::torch::optim::SGD>(in_bf16, sgd, {.compute = ::torch::kBFloat16},
                                                  device) &&
         good;
}

bool train_all(const ::torch::Device& device) {
  const std::vector<Plan> plans{
      {.name = "plain"},
      {.name = "accumulation", .passes = 3},
      {.name = "clipping", .clips = true},
      {.name = "groups", .options = {.num_groups = 3}},
      {.name = "predivided", .options = {.gradient_predivide_factor = 2.0}},
      {.name = "fp16 on the wire",
       .tolerance = 5e-5,
       .options = {.compression = kolo::Compression::fp16}},
      {.name = "bf16 on the wire",
       .tolerance = 3e-4,
       .options = {.compression = kolo::Compression::bf16}},
      {.name = "join", .uneven = true},
      {.name = "join, accumulation", .passes = 2, .uneven = true}};
  bool good = true;
  for (const Plan& plan : plans) good = train_distributed(plan, device) && good;
  if (device.is_cuda() && graphs::exist()) good = train_captured(device) && good;
  good = train_sharded("sharded state", kolo::Sharding::state, device) && good;
  good =
      train_sharded("sharded state and gradients", kolo::Sharding::state_and_gradients, device) &&
      good;
  return train_all_fully_sharded(device) && good;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const kolo::Session session(argc, argv);
    const bool on_cpu = argc > 1 && std::string_view(argv[1]) == "cpu";
    const ::torch::Device device = on_cpu ? ::torch::Device(::torch::kCPU) : kolo::local_device();
    if (!on_cpu && !device.is_cuda()) {
      std::puts("gpu_trainings: LibTorch sees no GPU");
      return 3;
    }
    return train_all(device) ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gpu_trainings: %s\n", error.what());
    return 1;
  }
}
