// SPDX-License-Identifier: Apache-2.0
// Trains a small network twice from the same weights, in LibTorch's default stream and in another,
// where a long queue of work delays each gradient. If a hook did not wait for the stream of
// backward, its gradient would be reduced before it is computed. Both must give the same bits.
// Usage: mpirun -np N gpu_side_stream
#include <kolo/torch.hpp>  // before LibTorch, as clang 14 needs it

#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/cuda.h>
#include <torch/nn.h>
#include <torch/optim/sgd.h>

#include <cstdio>
#include <exception>
#include <vector>

namespace {

constexpr int steps = 10;

/// Work that takes the GPU longer than it takes the host to submit a step.
void delay(const torch::Device& gpu) {
  torch::Tensor product = torch::ones({4096, 4096}, gpu);
  for (int i = 0; i < 8; ++i) product = product.mm(product) / 4096;
}

std::vector<torch::Tensor> train(const torch::Device& gpu, bool is_delayed) {
  torch::manual_seed(7);
  torch::nn::Sequential model(torch::nn::Linear(256, 512), torch::nn::ReLU(),
                              torch::nn::Linear(512, 16));
  model->to(gpu);
  kolo::DistributedOptimizer optimizer(torch::optim::SGD(model->parameters(), 0.1),
                                       model->named_parameters(), {});
  kolo::broadcast_parameters(*model, 0);
  torch::manual_seed(100 + kolo::rank());
  for (int step = 0; step < steps; ++step) {
    const torch::Tensor input = torch::randn({64, 256}).to(gpu);
    if (is_delayed) delay(gpu);
    optimizer.zero_grad();
    model->forward(input).square().mean().backward();
    optimizer.step();
  }
  std::vector<torch::Tensor> weights;
  for (const torch::Tensor& parameter : model->parameters())
    weights.push_back(parameter.detach().cpu());
  return weights;
}

bool same_on_a_side_stream(const torch::Device& gpu) {
  const std::vector<torch::Tensor> expected = train(gpu, false);
  const c10::cuda::CUDAStreamGuard guard(
      c10::cuda::getStreamFromPool(/*isHighPriority=*/false, gpu.index()));
  const std::vector<torch::Tensor> found = train(gpu, true);
  for (std::size_t i = 0; i < expected.size(); ++i)
    if (!torch::equal(expected[i], found[i])) return false;
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const kolo::Session session(argc, argv);
    const torch::Device gpu = kolo::local_device();
    if (!gpu.is_cuda()) {
      std::puts("gpu_side_stream: LibTorch sees no GPU");
      return 3;
    }
    const bool same = same_on_a_side_stream(gpu);
    std::printf("rank %d: hooks on a side stream: %s\n", kolo::rank(),
                same ? "same bits" : "WRONG");
    return same ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gpu_side_stream: %s\n", error.what());
    return 1;
  }
}
