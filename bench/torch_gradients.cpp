// SPDX-License-Identifier: Apache-2.0
// A LibTorch backward pass that only creates all gradients of a model, on several ranks: without
// reduction, and reduced in private and in shared memory.
//
//   mpirun -np 2 bench-torch-gradients --gradients FILE [--steps 5] [--rounds 10]
//
// FILE has a line "name shape" for each parameter, as kolo-perf --list-gradients prints them.
// Blocks of passes of the three kinds alternate. Each block begins with a pass that is not timed.
// The time of a pass is that of its slowest rank; zeroing the gradients is not counted.
#include <ATen/core/ivalue.h>

#include <ATen/ops/full.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/utils.h>

#include <chrono>
#include <cstdio>
#include <exception>
#include <fstream>
#include <kolo/torch.hpp>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "blocks.hpp"

namespace {

/// A function without computation: its gradient is new memory, filled with one number.
struct MakeGradient : torch::autograd::Function<MakeGradient> {
  static torch::Tensor forward(torch::autograd::AutogradContext* context,
                               const torch::Tensor& parameter) {
    context->saved_data["sizes"] = parameter.sizes();
    return torch::zeros({});
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& /*of*/) {
    return {at::full(context->saved_data["sizes"].toIntVector(), kolo::rank() + 1.0)};
  }
};

class Parameters : public torch::nn::Module {
 public:
  explicit Parameters(const std::string& path) {
    std::ifstream file(path);
    std::string name;
    for (std::string shape; file >> name >> shape; file.ignore(1 << 16, '\n'))
      register_parameter("p" + std::to_string(all_.size()), add(shape));
    if (all_.empty()) throw std::invalid_argument("'" + path + "' has no gradients");
  }

  void backward() {
    std::vector<torch::Tensor> losses;
    for (const torch::Tensor& parameter : all_) losses.push_back(MakeGradient::apply(parameter));
    const torch::Tensor loss = torch::stack(losses).sum();
    kolo::barrier();
    const auto begin = std::chrono::steady_clock::now();
    loss.backward();
    milliseconds_ =
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  }
  /// The time of the last pass.
  [[nodiscard]] double milliseconds() const { return milliseconds_; }

  void require(double value) const {
    for (const torch::Tensor& parameter : all_)
      if (!parameter.grad().eq(value).all().item<bool>())
        throw std::runtime_error("a gradient is wrong");
  }

 private:
  torch::Tensor add(const std::string& shape) {
    std::vector<std::int64_t> lengths;
    std::istringstream stream(shape);
    for (std::string length; std::getline(stream, length, 'x');)
      lengths.push_back(std::stoll(length));
    return all_.emplace_back(torch::zeros(lengths).set_requires_grad(true));
  }

  std::vector<torch::Tensor> all_;
  double milliseconds_ = 0.0;
};

struct Kind {
  const char* name;
  bool reduces;
  bool shares;
  std::vector<double> times{};
  std::vector<double> ratios{};
};

/// The median time of a pass in a block.
double time_of(const Kind& kind, Parameters& parameters, int steps) {
  std::unique_ptr<kolo::SharedGradients> shared;
  std::unique_ptr<kolo::DistributedGradients> gradients;
  if (kind.shares) shared = std::make_unique<kolo::SharedGradients>(parameters);
  if (kind.reduces) gradients = std::make_unique<kolo::DistributedGradients>(parameters);
  std::vector<double> times;
  for (int step = -1; step < steps; ++step) {
    parameters.zero_grad();
    parameters.backward();
    double slowest = parameters.milliseconds();
    kolo::allreduce(slowest, {.name = "milliseconds", .op = kolo::ReduceOp::max});
    if (step >= 0) times.push_back(slowest);
  }
  parameters.require(kind.reduces ? (kolo::size() + 1) / 2.0 : kolo::rank() + 1.0);
  for (torch::Tensor& parameter : parameters.parameters()) parameter.mutable_grad().reset();
  return blocks::median(times);
}

void run(const blocks::Options& options) {
  Parameters parameters(options.text);
  std::vector<Kind> kinds{{"not reduced", false, false},
                          {"reduced in ordinary memory", true, false},
                          {"reduced in shared memory", true, true}};
  std::vector<double> now(kinds.size());
  for (int round = -1; round < options.rounds; ++round) {
    for (std::size_t i = 0; i < kinds.size(); ++i) {
      const std::size_t kind = blocks::place(i, round + 1, kinds.size());
      now[kind] = time_of(kinds[kind], parameters, options.steps);
    }
    if (round < 0) continue;  // warm-up
    for (std::size_t i = 0; i < kinds.size(); ++i) {
      kinds[i].times.push_back(now[i]);
      kinds[i].ratios.push_back(now[i] / now.front());
    }
  }
  if (kolo::rank() != 0) return;
  std::printf("ranks,gradients,ms,relative\n");
  for (const Kind& kind : kinds)
    std::printf("%d,%s,%.1f,%.2f\n", kolo::size(), kind.name, blocks::median(kind.times),
                blocks::median(kind.ratios));
}

}  // namespace

int main(int argc, char** argv) {
  try {
    torch::set_num_threads(1);
    const kolo::Session session;
    run(blocks::read_options(argc, argv, "--gradients", {.steps = 5, .rounds = 10}));
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench-torch-gradients: %s\n", error.what());
    return 1;
  }
}
