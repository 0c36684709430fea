// Networks for images of ImageNet's kind, as they are commonly measured.
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

/// Pixels of the square images that the model was made for.
[[nodiscard]] std::int64_t image_size_of(const std::string& name);

/// Inception v3 without its second output.
[[nodiscard]] torch::nn::Sequential make_inception3();

/// Images [n, 3, h, w] to logits [n, 1000], with initial weights from LibTorch's random numbers.
/// `name` is one of `model_names`.
[[nodiscard]] torch::nn::Sequential make_model(const std::string& name);

}  // namespace benchmark
