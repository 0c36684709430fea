// SPDX-License-Identifier: Apache-2.0
// Trains a fully sharded model elastically, and compares it with one process. All ranks have the
// same data, so averages over one or two ranks are exact.
//
//   elastic_fully_sharded_program FOLDER [fault=KIND:PHASE:RANK:STEP]... [grow_to=N]
#include <kolo/torch.hpp>  // before LibTorch, as clang 14 needs it

#include <ATen/Parallel.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include <chrono>
#include <cstdint>
#include <exception>
#include <iostream>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "faults.hpp"

namespace {

namespace nn = torch::nn;
using kolo::internal::Faults;
using torch::optim::SGD;

constexpr int steps = 20;

template <typename Layer>
struct NetImpl : nn::Module {
  NetImpl() {
    torch::manual_seed(3);
    for (int i = 0; i < 4; ++i)
      layers.push_back(register_module("layer" + std::to_string(i), Layer(9, 9)));
  }
  torch::Tensor forward(torch::Tensor x) {
    for (auto& layer : layers) x = torch::tanh(layer->forward(x));
    return x;
  }
  std::vector<Layer> layers{};
};
using Net = nn::ModuleHolder<NetImpl<nn::Linear>>;
using ShardedNet = kolo::Sharded<nn::ModuleHolder<NetImpl<kolo::Sharded<nn::Linear>>>>;

template <typename Model>
torch::Tensor loss_of(Model& model, std::int64_t step) {
  const torch::Tensor x =
      torch::sin(torch::arange(36, torch::kFloat32) * (1.0 + 0.1 * double(step)));
  return model->forward(x.view({4, 9})).square().mean();
}

struct Options {
  std::vector<std::string> faults{};
  int grow_to = 0;
};

class Training {
 public:
  Training(const Options& options, Faults& faults) : options_(options), faults_(faults) {
    state_.add("model", saved_).add("step", step_);
  }
  std::string run() {
    kolo::elastic::run(state_, [this] { train(); });
    return {saved_.begin(), saved_.end()};
  }

 private:
  // A process that has just started constructs what the others have.
  void begin() {
    if (sharded_) {
      sharded_->rejoin();
    } else {
      const kolo::ConstructSharded guard;
      model_.emplace();
      sharded_.emplace(*model_);
      optimizer_.emplace(sharded_->parameters(), 0.1);
    }
    if (!saved_.empty())
      sharded_->load_full_state(
          kolo::from_safetensors({reinterpret_cast<const char*>(saved_.data()), saved_.size()}));
  }

  void train() {
    begin();
    while (step_ < steps || kolo::size() < options_.grow_to) {
      faults_.at("step", kolo::rank(), static_cast<std::size_t>(step_));
      if (step_ < steps) {
        sharded_->zero_grad();
        loss_of(*model_, step_).backward();
        (void)kolo::clip_grad_norm(*optimizer_, 1e9);
        optimizer_->step();
        ++step_;
        const std::string bytes = kolo::to_safetensors(sharded_->full_state());
        saved_.assign(bytes.begin(), bytes.end());
      }
      state_.commit();
      if (options_.grow_to > 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }

  const Options& options_;
  Faults& faults_;
  std::vector<std::uint8_t> saved_{};
  std::int64_t step_ = 0;
  std::optional<ShardedNet> model_{};
  std::optional<kolo::FullySharded> sharded_{};
  std::optional<SGD> optimizer_{};
  kolo::elastic::State state_{};
};

std::string train_alone() {
  Net model;
  SGD optimizer(model->parameters(), 0.1);
  for (int step = 0; step < steps; ++step) {
    optimizer.zero_grad();
    loss_of(model, step).backward();
    optimizer.step();
  }
  return kolo::to_safetensors(kolo::state(*model));
}

}  // namespace

int main(int argc, char** argv) {
  try {
    at::set_num_threads(1);
    Options options;
    for (const std::string text : std::span(argv + 2, static_cast<std::size_t>(argc - 2))) {
      if (text.starts_with("fault=")) options.faults.push_back(text.substr(6));
      if (text.starts_with("grow_to=")) options.grow_to = std::stoi(text.substr(8));
    }
    static Faults faults(argv[1], options.faults);
    const kolo::Session session;
    Training training(options, faults);
    const std::string trained = training.run();
    faults.end();
    if (trained != train_alone()) throw std::runtime_error("other bits than one process");
    std::cout << "fully sharded: the bits of one process\n";
    return 0;
  } catch (const std::exception& error) {
    std::cerr << "elastic_fully_sharded_program: " << error.what() << '\n';
    return 1;
  }
}
