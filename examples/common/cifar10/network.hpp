// SPDX-License-Identifier: Apache-2.0
// The convolutional network of the Keras example cifar10_cnn, with 1.25 million parameters.
#pragma once

// clang 14 can read LibTorch 1.13 in C++20 only if this comes first.
#include <ATen/core/ivalue.h>

#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>
#include <torch/optim/rmsprop.h>

#include <cstdint>
#include <filesystem>

#include "batch.hpp"

namespace cifar10 {

/// A batch as the network's input: images [n, 3, 32, 32] and labels [n]. On the CPU these are views
/// of the batch, valid until it is filled again.
struct BatchTensors {
  torch::Tensor images;
  torch::Tensor labels;
};
[[nodiscard]] BatchTensors as_tensors(Batch& batch, torch::Device device = torch::kCPU);

/// Images [n, 3, 32, 32], pixels from 0 to 1, to logits [n, 10].
class NetworkImpl : public torch::nn::Module {
 public:
  NetworkImpl();
  torch::Tensor forward(torch::Tensor x);

 private:
  torch::nn::Conv2d conv1_, conv2_, conv3_, conv4_;
  torch::nn::Linear dense1_, dense2_;
  torch::nn::Dropout after_block1_, after_block2_, after_dense1_;
};
TORCH_MODULE(Network);

/// Creates a network with initial weights drawn from the seed, equal on every device.
[[nodiscard]] Network make_network(std::uint64_t seed, torch::Device device = torch::kCPU);

/// Writes the network alone; `torch::load` reads it into a `Network`. The file is replaced
/// atomically. Throws on failure.
void save_network(const std::filesystem::path& file, const Network& network);

/// RMSprop with the defaults of Keras: rho 0.9, epsilon 1e-7.
[[nodiscard]] torch::optim::RMSprop make_rmsprop(Network& network, double learning_rate);

}  // namespace cifar10
