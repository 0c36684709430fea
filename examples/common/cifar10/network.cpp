// SPDX-License-Identifier: Apache-2.0
#include "network.hpp"

#include <torch/nn/functional/activation.h>
#include <torch/nn/functional/pooling.h>
#include <torch/nn/init.h>
#include <torch/serialize/archive.h>
#include <torch/utils.h>

namespace cifar10 {
namespace {

namespace nn = torch::nn;

enum class Border {
  same,
  valid
};  // as in Keras: `same` keeps the image's size, `valid` loses a pixel on each side

nn::Conv2dOptions convolution(std::int64_t in, std::int64_t out, Border border) {
  return nn::Conv2dOptions(in, out, 3).padding(border == Border::same ? 1 : 0);
}

// Glorot and Bengio, 2010: the initial weights of Keras, which differ from LibTorch's.
template <typename Layer>
Layer keras_initialized(Layer layer) {
  nn::init::xavier_uniform_(layer->weight);
  nn::init::zeros_(layer->bias);
  return layer;
}

}  // namespace

BatchTensors as_tensors(Batch& batch, torch::Device device) {
  const auto images = static_cast<std::int64_t>(batch.labels.size());
  constexpr auto length = static_cast<std::int64_t>(side);
  constexpr auto depth = static_cast<std::int64_t>(channels);
  // Channels are innermost in memory (channels-last), the fastest layout for oneDNN's convolutions.
  const auto pixels = torch::from_blob(batch.pixels.data(), {images, length, length, depth});
  return {.images = pixels.permute({0, 3, 1, 2}).to(device),
          .labels = torch::from_blob(batch.labels.data(), {images}, torch::kLong).to(device)};
}

NetworkImpl::NetworkImpl()
    : conv1_(keras_initialized(nn::Conv2d(convolution(3, 32, Border::same)))),
      conv2_(keras_initialized(nn::Conv2d(convolution(32, 32, Border::valid)))),
      conv3_(keras_initialized(nn::Conv2d(convolution(32, 64, Border::same)))),
      conv4_(keras_initialized(nn::Conv2d(convolution(64, 64, Border::valid)))),
      dense1_(keras_initialized(nn::Linear(64 * 6 * 6, 512))),
      dense2_(keras_initialized(nn::Linear(512, 10))),
      after_block1_(0.25),
      after_block2_(0.25),
      after_dense1_(0.5) {
  register_module("conv1", conv1_);
  register_module("conv2", conv2_);
  register_module("conv3", conv3_);
  register_module("conv4", conv4_);
  register_module("dense1", dense1_);
  register_module("dense2", dense2_);
  register_module("after_block1", after_block1_);
  register_module("after_block2", after_block2_);
  register_module("after_dense1", after_dense1_);
}

torch::Tensor NetworkImpl::forward(torch::Tensor x) {
  x = conv1_->forward(x).relu_();
  x = conv2_->forward(x).relu_();
  x = after_block1_->forward(torch::max_pool2d(x, 2));  // [n, 32, 15, 15]
  x = conv3_->forward(x).relu_();
  x = conv4_->forward(x).relu_();
  x = after_block2_->forward(torch::max_pool2d(x, 2));  // [n, 64, 6, 6]
  x = dense1_->forward(x.flatten(1)).relu_();
  return dense2_->forward(after_dense1_->forward(x));
}

Network make_network(std::uint64_t seed, torch::Device device) {
  torch::manual_seed(seed);
  Network network;
  network->to(device);
  return network;
}

void save_network(const std::filesystem::path& file, const Network& network) {
  const std::filesystem::path unfinished = file.string() + ".part";
  torch::serialize::OutputArchive archive;
  network->save(archive);
  archive.save_to(unfinished.string());
  std::filesystem::rename(unfinished, file);
}

torch::optim::RMSprop make_rmsprop(Network& network, double learning_rate) {
  return torch::optim::RMSprop(network->parameters(),
                               torch::optim::RMSpropOptions(learning_rate).alpha(0.9).eps(1e-7));
}

}  // namespace cifar10
