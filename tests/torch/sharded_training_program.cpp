// SPDX-License-Identifier: Apache-2.0
// Trainings with sharded optimizers: accumulated passes, clipping, scaled losses with a step that
// all ranks skip, and gathered state. Prints digests, which must be the same for tensors on CPUs
// and on GPUs, on every data path.
//
// Usage: sharded_training_program cpu|cuda
#include <kolo/torch.hpp>  // before LibTorch, as clang 14 needs it

#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/utils.h>

#include <cstdint>
#include <cstdio>
#include <exception>
#include <limits>
#include <string>
#include <string_view>

namespace {

using ::torch::Tensor;

class Digest {
 public:
  void add(const void* data, std::size_t bytes) {
    const auto* const begin = static_cast<const unsigned char*>(data);
    for (std::size_t i = 0; i < bytes; ++i) hash_ = (hash_ ^ begin[i]) * 1099511628211U;
  }
  [[nodiscard]] unsigned long long value() const { return hash_; }

 private:
  std::uint64_t hash_ = 14695981039346656037U;
};

unsigned long long digest_of(::torch::nn::Module& model) {
  Digest digest;
  for (const Tensor& tensor : model.parameters()) {
    const Tensor host = tensor.detach().cpu().contiguous();
    digest.add(host.data_ptr(), host.nbytes());
  }
  return digest.value();
}

void train(const ::torch::Device& device, kolo::Sharding sharding) {
  ::torch::manual_seed(3);
  // Large in the middle, so that gradients are reduced while backward still computes others.
  ::torch::nn::Sequential model(
      ::torch::nn::Linear(12, 41), ::torch::nn::ReLU(), ::torch::nn::Linear(41, 41),
      ::torch::nn::ReLU(), ::torch::nn::Linear(41, 1501), ::torch::nn::ReLU(),
      ::torch::nn::Linear(1501, 1500), ::torch::nn::ReLU(), ::torch::nn::Linear(1500, 1500),
      ::torch::nn::ReLU(), ::torch::nn::Linear(1500, 3));
  model->to(device);
  kolo::broadcast_parameters(*model, 0);
  kolo::ShardedOptimizer optimizer(::torch::optim::AdamW(model->parameters(), 0.01),
                                   model->named_parameters(), {}, sharding);
  kolo::GradScaler scaler({.initial = 1024.0});
  ::torch::manual_seed(100 + static_cast<std::uint64_t>(kolo::rank()));
  const auto pass = [&](bool overflows) {
    const Tensor x = ::torch::randn({16, 12}).to(device);
    const Tensor y = x.slice(1, 0, 3).argmax(1);
    Tensor loss = ::torch::nn::functional::cross_entropy(model->forward(x), y);
    if (overflows) loss = loss * std::numeric_limits<float>::infinity();
    scaler.scale(loss).backward();
  };
  for (int step = 0; step < 5; ++step) {
    optimizer.zero_grad();
    if (step % 2 == 1) {
      const auto local = optimizer.no_sync();
      pass(false);
    }
    pass(step == 2 && kolo::rank() == 0);
    scaler.unscale(optimizer);
    if (step == 3) kolo::clip_grad_norm(optimizer, 0.1);
    const bool stepped = scaler.step(optimizer);
    scaler.update();
    std::printf("rank %d, step %d: %d %llx\n", kolo::rank(), step, stepped ? 1 : 0,
                digest_of(*model));
  }
  const std::string state = kolo::to_safetensors(optimizer.full_state(0));
  Digest digest;
  digest.add(state.data(), state.size());
  std::printf("rank %d, state: %llx\n", kolo::rank(), digest.value());
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const kolo::Session session({.flight_recorder_dir = "off"});
    const bool on_gpu = argc > 1 && std::string_view(argv[1]) == "cuda";
    const ::torch::Device device =
        on_gpu
            ? ::torch::Device(::torch::kCUDA, static_cast<::torch::DeviceIndex>(kolo::local_rank()))
            : ::torch::Device(::torch::kCPU);
    train(device, kolo::Sharding::state);
    train(device, kolo::Sharding::state_and_gradients);
    std::fflush(stdout);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "caught: %s\n", error.what());
    return 1;
  }
}
