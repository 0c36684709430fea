// SPDX-License-Identifier: Apache-2.0
// A training in which ranks have unequal numbers of batches and join at the end of each epoch.
// Prints a digest of the model, which must be the same for tensors on CPUs and on GPUs, on every
// data path.
//
// Usage: join_training_program cpu|cuda
#include <kolo/torch.hpp>  // before LibTorch, as clang 14 needs it

#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <string_view>

namespace {

using ::torch::Tensor;

std::uint64_t digest_of(::torch::nn::Module& model) {
  std::uint64_t hash = 14695981039346656037U;
  for (const Tensor& tensor : model.parameters()) {
    const Tensor host = tensor.detach().cpu().contiguous();
    for (std::int64_t i = 0; i < host.numel(); ++i) {
      std::uint32_t bits = 0;
      std::memcpy(&bits, host.data_ptr<float>() + i, sizeof(bits));
      hash = (hash ^ bits) * 1099511628211U;
    }
  }
  return hash;
}

void train(const ::torch::Device& device) {
  ::torch::manual_seed(3);
  ::torch::nn::Sequential model(::torch::nn::Linear(12, 40), ::torch::nn::ReLU(),
                                ::torch::nn::Linear(40, 40), ::torch::nn::ReLU(),
                                ::torch::nn::Linear(40, 3));
  model->to(device);
  kolo::broadcast_parameters(*model, 0);
  kolo::DistributedOptimizer optimizer(
      ::torch::optim::SGD(model->parameters(), ::torch::optim::SGDOptions(0.1).momentum(0.9)),
      model->named_parameters());
  ::torch::manual_seed(100 + static_cast<std::uint64_t>(kolo::rank()));
  for (int epoch = 0; epoch < 4; ++epoch) {
    const int batches = 3 + (kolo::rank() + epoch / 2) % kolo::size();
    for (int batch = 0; batch < batches; ++batch) {
      const Tensor x = ::torch::randn({16, 12}).to(device);
      const Tensor y = x.slice(1, 0, 3).argmax(1);
      optimizer.zero_grad();
      ::torch::nn::functional::cross_entropy(model->forward(x), y).backward();
      optimizer.step();
    }
    const int last = kolo::join();
    kolo::broadcast_parameters(*model, last);
    kolo::broadcast_optimizer_state(optimizer, last);
    std::printf("rank %d, epoch %d: %llx\n", kolo::rank(), epoch,
                static_cast<unsigned long long>(digest_of(*model)));
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const kolo::Session session({.flight_recorder_dir = "off"});
    const bool on_gpu = argc > 1 && std::string_view(argv[1]) == "cuda";
    train(on_gpu ? ::torch::Device(::torch::kCUDA,
                                   static_cast<::torch::DeviceIndex>(kolo::local_rank()))
                 : ::torch::Device(::torch::kCPU));
    std::fflush(stdout);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "caught: %s\n", error.what());
    return 1;
  }
}
