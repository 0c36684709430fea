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

/// Makes the normalisation that follows a convolution with so many channels.
using MakeNorm = std::function<torch::nn::AnyModule(std::int64_t channels)>;

[[nodiscard]] torch::nn::AnyModule batch_norm(std::int64_t channels);

/// Of groups of 8 channels or more, at most 32 (Wu and He, 2018,
/// https://arxiv.org/abs/1803.08494). What a picture's values become does not depend on the rest of
/// its batch.
[[nodiscard]] torch::nn::AnyModule group_norm(std::int64_t channels);

struct ResNetOptions {
  std::array<int, 4> blocks{3, 4, 6, 3};  ///< Of each stage: those of ResNet-50.
  bool bottleneck = true;                 ///< Blocks of three convolutions; else of two.
  std::int64_t width = 64;                ///< Channels of the stem.
  MakeNorm norm = batch_norm;
};

struct ResNet {
  torch::nn::Sequential stem;                   ///< Images [n, 3, h, w] to [n, width, h/4, w/4].
  std::array<torch::nn::Sequential, 4> stages;  ///< Each but the first halves height and width.
  std::array<std::int64_t, 4> channels{};       ///< That come out of each stage.
};

/// With initial weights from LibTorch's random numbers.
[[nodiscard]] ResNet make_resnet(const ResNetOptions& options);

}  // namespace examples
