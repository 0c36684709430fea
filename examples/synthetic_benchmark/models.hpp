// SPDX-License-Identifier: Apache-2.0
// Networks for ImageNet-sized images, as commonly benchmarked.
#pragma once

// clang 14 can read LibTorch 1.13 in C++20 only if this comes first.
#include <ATen/core/ivalue.h>

#include <torch/nn/modules/container/sequential.h>

#include <cstdint>
#include <string>
#include <vector>

namespace benchmark {

inline constexpr std::int64_t classes = 1000;

/// "resnet50", "resnet101", "vgg16", "inception3", and "tiny" for tests.
[[nodiscard]] const std::vector<std::string>& model_names();

/// Side in pixels of the square images that the model is designed for.
[[nodiscard]] std::int64_t image_size_of(const std::string& name);

/// Inception v3 without its auxiliary output.
[[nodiscard]] torch::nn::Sequential make_inception3();

/// A model from images [n, 3, h, w] to logits [n, 1000]. Initial weights come from LibTorch's
/// random numbers. `name` is one of `model_names`.
[[nodiscard]] torch::nn::Sequential make_model(const std::string& name);

}  // namespace benchmark
