// SPDX-License-Identifier: Apache-2.0
// Residual networks (He et al., 2015, https://arxiv.org/abs/1512.03385), stage by stage.
#pragma once

// clang 14 can read LibTorch 1.13 in C++20 only if this comes first.
#include <ATen/core/ivalue.h>

#include <torch/nn/modules/container/any.h>
#include <torch/nn/modules/container/sequential.h>

#include <array>
#include <cstdint>
#include <functional>

namespace examples {

/// Creates the normalization after a convolution with this number of channels.
using MakeNorm = std::function<torch::nn::AnyModule(std::int64_t channels)>;

[[nodiscard]] torch::nn::AnyModule batch_norm(std::int64_t channels);

/// Group normalization with at most 32 groups of at least 8 channels (Wu and He, 2018,
/// https://arxiv.org/abs/1803.08494). An image's result does not depend on the rest of its batch.
[[nodiscard]] torch::nn::AnyModule group_norm(std::int64_t channels);

struct ResNetOptions {
  std::array<int, 4> blocks{3, 4, 6, 3};  ///< Blocks per stage; the default is ResNet-50's.
  bool bottleneck = true;                 ///< Blocks have three convolutions; else two.
  std::int64_t width = 64;                ///< Channels of the stem.
  MakeNorm norm = batch_norm;
};

struct ResNet {
  torch::nn::Sequential stem;                   ///< Images [n, 3, h, w] to [n, width, h/4, w/4].
  std::array<torch::nn::Sequential, 4> stages;  ///< All but the first halve height and width.
  std::array<std::int64_t, 4> channels{};       ///< Output channels of each stage.
};

/// Initial weights come from LibTorch's random numbers.
[[nodiscard]] ResNet make_resnet(const ResNetOptions& options);

}  // namespace examples
