// SPDX-License-Identifier: Apache-2.0
// A training step of ResNet-50 on a GPU, with Kolo and without it, in one run.
//
//   KOLO_LAUNCHER=none bench-gpu-step [OPTIONS]
//   mpirun -np N bench-gpu-step [--batch-size 32] [--dtype f32|bf16] [--steps 10] [--rounds 7]
//                               [--kinds plain,kolo] [--model resnet50|tiny] [--device cuda|cpu]
//
// Kinds of steps:
//   plain     LibTorch alone
//   kolo      DistributedOptimizer
//   late      DistributedOptimizer that reduces in `step`, so that nothing overlaps with backward
//   hooks     a DistributedOptimizer that never reduces: the cost of its hooks
//   graph     plain, captured into a CUDA graph
//   captured  kolo, captured into a CUDA graph
//   split     forward and backward in a graph, an allreduce of all gradients, the update in a graph
//
// Blocks of steps of each kind alternate; each ends when the GPU is done, so that the host may run
// ahead within a block. The time of a block is that of its slowest rank. For kinds that are not
// captured it also prints what the host's calls take in a step: zero_grad and forward, backward,
// step. Exits with 77 if a kind cannot be captured.
#include <kolo/torch.hpp>  // before LibTorch, as clang 14 needs it

#include <ATen/Context.h>
#include <fmt/format.h>
#include <torch/cuda.h>
#include <torch/nn/functional/loss.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "blocks.hpp"
#include "gpu_graph.hpp"
#include "measured.hpp"
#include "models.hpp"

namespace {

constexpr int cannot_capture = 77;

struct Options {
  std::int64_t batch_size = 32;
  std::string dtype = "f32";
  int steps = 10;
  int rounds = 7;
  std::vector<std::string> kinds{"plain", "kolo"};
  std::string model = "resnet50";
  std::string device = "cuda";
};

/// The host's time in the parts of one kind's steps, in milliseconds.
struct HostTimes {
  std::vector<double> forward{};  // zero_grad, too
  std::vector<double> backward{};
  std::vector<double> step{};
};

template <typename Call>
void time(std::vector<double>& times, const Call& call) {
  const auto begin = std::chrono::steady_clock::now();
  call();
  const std::chrono::duration<double, std::milli> spent = std::chrono::steady_clock::now() - begin;
  times.push_back(spent.count());
}

/// A model and one batch, which is trained on again and again.
class Training {
 public:
  Training(const Options& options, const torch::Device& device) : device_(device) {
    torch::manual_seed(7);
    model_ = benchmark::make_model(options.model);
    const torch::Dtype dtype = options.dtype == "bf16" ? torch::kBFloat16 : torch::kFloat;
    model_->to(device, dtype);
    torch::manual_seed(100 + static_cast<std::uint64_t>(kolo::rank()));
    const std::int64_t side = device.is_cpu() ? 32 : benchmark::image_size_of(options.model);
    images_ = torch::randn({options.batch_size, 3, side, side}).to(device, dtype);
    labels_ = torch::randint(benchmark::classes, {options.batch_size}, torch::kLong).to(device);
    use_channels_last();
  }

  [[nodiscard]] const torch::Device& device() const { return device_; }
  [[nodiscard]] const torch::nn::Sequential& model() const { return model_; }
  [[nodiscard]] double loss() const { return loss_.item<double>(); }

  [[nodiscard]] torch::Tensor forward() {
    return torch::nn::functional::cross_entropy(model_->forward(images_).to(torch::kFloat),
                                                labels_);
  }
  void backward(const torch::Tensor& loss) {
    loss.backward();
    loss_ = loss.detach();
  }

 private:
  /// The layout in which convolutions on a GPU are fastest.
  void use_channels_last() {
    const torch::NoGradGuard no_gradients;
    for (torch::Tensor& parameter : model_->parameters()) {
      if (parameter.dim() == 4)
        parameter.set_data(parameter.contiguous(at::MemoryFormat::ChannelsLast));
    }
    images_ = images_.contiguous(at::MemoryFormat::ChannelsLast);
  }

  torch::Device device_;
  torch::nn::Sequential model_{nullptr};
  torch::Tensor images_{};
  torch::Tensor labels_{};
  torch::Tensor loss_{};
};

/// One kind of step, and the times of its blocks.
struct Kind {
  std::string name;
  std::shared_ptr<Training> training;
  std::function<void()> step{};
  std::vector<double> times{};
  std::shared_ptr<HostTimes> host = std::make_shared<HostTimes>();
};

torch::optim::SGD sgd_of(const Training& training) {
  return torch::optim::SGD(training.model()->parameters(),
                           torch::optim::SGDOptions(0.001).momentum(0.9));
}

using Backward = std::function<void(const torch::Tensor& loss)>;

template <typename Optimizer>
std::function<void()> eager(const std::shared_ptr<Training>& training,
                            const std::shared_ptr<Optimizer>& optimizer, const Backward& backward,
                            const std::shared_ptr<HostTimes>& host) {
  return [training, optimizer, backward, host] {
    torch::Tensor loss;
    time(host->forward, [&] {
      optimizer->zero_grad();
      loss = training->forward();
    });
    time(host->backward, [&] { backward(loss); });
    time(host->step, [&] { optimizer->step(); });
  };
}

template <typename Optimizer>
std::function<void()> captured(const std::shared_ptr<Training>& training,
                               const std::shared_ptr<Optimizer>& optimizer) {
  return graphs::capture(
      training->device(), [optimizer] { optimizer->zero_grad(); },
      [training, optimizer] {
        training->backward(training->forward());
        optimizer->step();
      });
}

std::function<void()> split(const std::shared_ptr<Training>& training,
                            const std::shared_ptr<torch::optim::SGD>& optimizer) {
  const auto compute = graphs::capture(
      training->device(), [optimizer] { optimizer->zero_grad(); },
      [training] { training->backward(training->forward()); });
  const auto update = graphs::capture(
      training->device(), [] {}, [optimizer] { optimizer->step(); });
  return [training, compute, update] {
    compute();
    std::vector<torch::Tensor> gradients;
    for (const torch::Tensor& parameter : training->model()->parameters())
      if (parameter.grad().defined()) gradients.push_back(parameter.grad());
    kolo::grouped_allreduce_(gradients, {.name = "gradients"});
    update();
  };
}

std::function<void()> make_step(const std::string& kind, const std::shared_ptr<Training>& training,
                                const std::shared_ptr<HostTimes>& host) {
  const auto plain = std::make_shared<torch::optim::SGD>(sgd_of(*training));
  const Backward backward = [training](const torch::Tensor& loss) { training->backward(loss); };
  if (kind == "plain") return eager(training, plain, backward, host);
  if (kind == "graph") return captured(training, plain);
  if (kind == "split") return split(training, plain);
  const auto kolo_s = std::make_shared<kolo::DistributedOptimizer<torch::optim::SGD>>(
      sgd_of(*training), training->model()->named_parameters());
  if (kind == "kolo") return eager(training, kolo_s, backward, host);
  if (kind == "captured") return captured(training, kolo_s);
  const Backward local = [kolo_s, backward](const torch::Tensor& loss) {
    const kolo::NoSync no_sync = kolo_s->no_sync();
    backward(loss);
  };
  if (kind == "hooks") return eager(training, plain, local, host);
  return eager(training, kolo_s, local, host);
}

/// Ends the program if a kind cannot be captured: the session may be broken.
std::vector<Kind> make_kinds(const Options& options, const torch::Device& device) {
  std::vector<Kind> kinds;
  for (const std::string& name : options.kinds) {
    Kind kind{.name = name, .training = std::make_shared<Training>(options, device)};
    try {
      kind.step = make_step(name, kind.training, kind.host);
    } catch (const std::exception& error) {
      if (name != "captured") throw;
      fmt::print("bench-gpu-step: the step cannot be captured: {}\n", error.what());
      std::fflush(stdout);
      std::_Exit(cannot_capture);
    }
    kinds.push_back(std::move(kind));
  }
  return kinds;
}

/// Milliseconds of a step.
double time_of(const Kind& kind, int steps) {
  const auto block = [&] {
    for (int i = 0; i < steps; ++i) kind.step();
    if (kind.training->device().is_cuda()) torch::cuda::synchronize();
  };
  return blocks::time_of(1, block) / steps;
}

void report(const Options& options, const std::vector<Kind>& kinds) {
  const std::string prefix = fmt::format("step-{}-{}", options.batch_size, options.dtype);
  std::map<std::string, const Kind*> by_name;
  for (const Kind& kind : kinds) by_name[kind.name] = &kind;
  const std::map<std::string, std::string> bases{{"kolo", "plain"},
                                                 {"late", "plain"},
                                                 {"hooks", "plain"},
                                                 {"captured", "graph"},
                                                 {"split", "graph"}};
  for (const Kind& kind : kinds) {
    const double loss = kind.training->loss();
    measured::print(fmt::format("{}-{}", prefix, kind.name), blocks::median(kind.times), "ms");
    measured::print(fmt::format("{}-{}-loss", prefix, kind.name), loss, "nats");
    for (const auto& [part, times] :
         {std::pair{"forward", kind.host->forward}, std::pair{"backward", kind.host->backward},
          std::pair{"step", kind.host->step}}) {
      if (!times.empty())
        measured::print(fmt::format("{}-{}-host-{}", prefix, kind.name, part),
                        blocks::median(times), "ms");
    }
    const auto base = bases.find(kind.name);
    if (base == bases.end() || !by_name.contains(base->second)) continue;
    std::vector<double> more;
    for (std::size_t i = 0; i < kind.times.size(); ++i)
      more.push_back(100 * (kind.times[i] / by_name[base->second]->times[i] - 1));
    measured::print(fmt::format("{}-{}-over-{}", prefix, kind.name, base->second),
                    blocks::median(more), "%");
  }
}

void run(const Options& options) {
  const torch::Device device =
      options.device == "cpu" ? torch::Device(torch::kCPU) : kolo::local_device();
  if (options.device == "cuda" && !device.is_cuda())
    throw std::runtime_error("LibTorch sees no GPU");
  at::globalContext().setAllowTF32CuBLAS(true);
  at::globalContext().setBenchmarkCuDNN(true);
  if (kolo::rank() == 0)
    fmt::print("{}, batch {}, {}, {} ranks\n", options.model, options.batch_size, options.dtype,
               kolo::size());
  std::vector<Kind> kinds = make_kinds(options, device);
  for (const Kind& kind : kinds) static_cast<void>(time_of(kind, options.steps));
  for (int round = 0; round < options.rounds; ++round) {
    for (std::size_t i = 0; i < kinds.size(); ++i) {
      Kind& kind = kinds[blocks::place(i, round, kinds.size())];
      kind.times.push_back(time_of(kind, options.steps));
    }
  }
  report(options, kinds);
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Measures a training step with Kolo and without it");
  app.add_option("--batch-size", options.batch_size)->check(CLI::PositiveNumber);
  app.add_option("--dtype", options.dtype)->check(CLI::IsMember({"f32", "bf16"}));
  app.add_option("--steps", options.steps)->check(CLI::PositiveNumber);
  app.add_option("--rounds", options.rounds)->check(CLI::PositiveNumber);
  app.add_option("--kinds", options.kinds)
      ->delimiter(',')
      ->check(CLI::IsMember({"plain", "kolo", "late", "hooks", "graph", "captured", "split"}));
  app.add_option("--model", options.model)->check(CLI::IsMember({"resnet50", "tiny"}));
  app.add_option("--device", options.device)->check(CLI::IsMember({"cuda", "cpu"}));
  CLI11_PARSE(app, argc, argv);
  try {
    const kolo::Session session({.flight_recorder_dir = "off"});
    run(options);
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench-gpu-step: {}\n", error.what());
    return 1;
  }
}
