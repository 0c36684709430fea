// SPDX-License-Identifier: Apache-2.0
// The two networks of a deep convolutional GAN (Radford et al., 2016,
// https://arxiv.org/abs/1511.06434), for images of 32x32 pixels.
#pragma once

// clang 14 can read LibTorch 1.13 in C++20 only if this comes first.
#include <ATen/core/ivalue.h>

#include <torch/nn/modules/container/sequential.h>

#include <cstdint>

namespace gan {

/// Noise [n, noise, 1, 1] to images [n, 3, 32, 32] with pixels from -1 to 1.
[[nodiscard]] torch::nn::Sequential make_generator(std::int64_t noise, std::int64_t width);

/// Images to logits [n]: how likely an image is real.
[[nodiscard]] torch::nn::Sequential make_discriminator(std::int64_t width);

}  // namespace gan
