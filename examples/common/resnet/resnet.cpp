// SPDX-License-Identifier: Apache-2.0
#include "resnet.hpp"

#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/modules/pooling.h>
#include <torch/nn/pimpl.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

namespace examples {
namespace {

namespace nn = torch::nn;

nn::Conv2d convolution(std::int64_t in, std::int64_t out, std::int64_t size, std::int64_t stride) {
  return nn::Conv2d(nn::Conv2dOptions(in, out, size).stride(stride).padding(size / 2).bias(false));
}

struct Layer {
  std::int64_t out, size, stride;
};

// A residual block: convolutions with normalizations, added to a shortcut.
class BlockImpl : public nn::Module {
 public:
  BlockImpl(std::int64_t in, const std::vector<Layer>& layers, const MakeNorm& norm) {
    std::int64_t channels = in, stride = 1;
    for (const Layer& layer : layers) {
      const std::string number = std::to_string(convolutions_.size() + 1);
      convolutions_.push_back(register_module(
          "conv" + number, convolution(channels, layer.out, layer.size, layer.stride)));
      norms_.push_back(norm(layer.out));
      register_module("bn" + number, norms_.back().ptr());
      channels = layer.out;
      stride *= layer.stride;
    }
    if (stride == 1 && in == channels) return;
    shortcut_ = nn::Sequential(convolution(in, channels, 1, stride));
    shortcut_->push_back(norm(channels));
    register_module("downsample", shortcut_);
  }

  torch::Tensor forward(const torch::Tensor& x) {
    torch::Tensor y = x;
    for (std::size_t i = 0; i < convolutions_.size(); ++i) {
      y = norms_[i].forward(convolutions_[i]->forward(y));
      if (i + 1 < convolutions_.size()) y.relu_();
    }
    return (y + (shortcut_.is_empty() ? x : shortcut_->forward(x))).relu_();
  }

 private:
  std::vector<nn::Conv2d> convolutions_;
  std::vector<nn::AnyModule> norms_;
  nn::Sequential shortcut_{nullptr};
};
TORCH_MODULE(Block);

// The stride is that of the 3x3 convolution in a bottleneck, and of the first convolution in a
// block of two.
std::vector<Layer> layers_of(bool bottleneck, std::int64_t width, std::int64_t stride) {
  if (bottleneck) return {{width, 1, 1}, {width, 3, stride}, {4 * width, 1, 1}};
  return {{width, 3, stride}, {width, 3, 1}};
}

}  // namespace

nn::AnyModule batch_norm(std::int64_t channels) { return nn::AnyModule(nn::BatchNorm2d(channels)); }

nn::AnyModule group_norm(std::int64_t channels) {
  const std::int64_t groups = std::clamp<std::int64_t>(channels / 8, 1, 32);
  return nn::AnyModule(nn::GroupNorm(nn::GroupNormOptions(groups, channels)));
}

ResNet make_resnet(const ResNetOptions& options) {
  ResNet resnet;
  resnet.stem->push_back(convolution(3, options.width, 7, 2));
  resnet.stem->push_back(options.norm(options.width));
  resnet.stem->push_back(nn::ReLU());
  resnet.stem->push_back(nn::MaxPool2d(nn::MaxPool2dOptions(3).stride(2).padding(1)));
  std::int64_t in = options.width, width = options.width;
  for (std::size_t stage = 0; stage < resnet.stages.size(); ++stage, width *= 2) {
    for (int block = 0; block < options.blocks[stage]; ++block) {
      const std::int64_t stride = block == 0 && stage > 0 ? 2 : 1;
      resnet.stages[stage]->push_back(
          Block(in, layers_of(options.bottleneck, width, stride), options.norm));
      in = options.bottleneck ? 4 * width : width;
    }
    resnet.channels[stage] = in;
  }
  return resnet;
}

}  // namespace examples
