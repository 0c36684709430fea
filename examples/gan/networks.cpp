// SPDX-License-Identifier: Apache-2.0
#include "networks.hpp"

#include <torch/nn/init.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

namespace gan {
namespace {

namespace nn = torch::nn;

// Doubles the size of an image.
nn::ConvTranspose2d grow(std::int64_t in, std::int64_t out) {
  return nn::ConvTranspose2d(
      nn::ConvTranspose2dOptions(in, out, 4).stride(2).padding(1).bias(false));
}

// Halves the size of an image.
nn::Conv2d shrink(std::int64_t in, std::int64_t out) {
  return nn::Conv2d(nn::Conv2dOptions(in, out, 4).stride(2).padding(1).bias(false));
}

nn::LeakyReLU leaky() { return nn::LeakyReLU(nn::LeakyReLUOptions().negative_slope(0.2)); }

// Normal weights with a deviation of 0.02, as in the paper.
nn::Sequential initialized(nn::Sequential network) {
  const torch::NoGradGuard no_grad;
  for (auto& parameter : network->named_parameters()) {
    torch::Tensor& tensor = parameter.value();
    if (tensor.dim() > 1) {
      nn::init::normal_(tensor, 0.0, 0.02);
    } else if (parameter.key().find("weight") != std::string::npos) {
      nn::init::normal_(tensor, 1.0, 0.02);  // batch normalization
    }
  }
  return network;
}

}  // namespace

nn::Sequential make_generator(std::int64_t noise, std::int64_t width) {
  const nn::ConvTranspose2d first(
      nn::ConvTranspose2dOptions(noise, 4 * width, 4).bias(false));                 // to 4x4 pixels
  return initialized(nn::Sequential(first, nn::BatchNorm2d(4 * width), nn::ReLU(),  //
                                    grow(4 * width, 2 * width), nn::BatchNorm2d(2 * width),
                                    nn::ReLU(),  //
                                    grow(2 * width, width), nn::BatchNorm2d(width), nn::ReLU(),
                                    grow(width, 3), nn::Tanh()));
}

nn::Sequential make_discriminator(std::int64_t width) {
  const nn::Conv2d last(nn::Conv2dOptions(4 * width, 1, 4).bias(false));  // from 4x4 pixels
  return initialized(nn::Sequential(shrink(3, width), leaky(),            //
                                    shrink(width, 2 * width), nn::BatchNorm2d(2 * width), leaky(),
                                    shrink(2 * width, 4 * width), nn::BatchNorm2d(4 * width),
                                    leaky(), last, nn::Flatten(nn::FlattenOptions().start_dim(0))));
}

}  // namespace gan
