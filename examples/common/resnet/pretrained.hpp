// SPDX-License-Identifier: Apache-2.0
// Weights of residual networks that were trained elsewhere.
#pragma once

#include "resnet.hpp"  // before others, as clang 14 needs it

#include <filesystem>

namespace examples {

/// A batch normalization whose statistics, scale and offset never change. Its four tensors are
/// buffers, so no optimizer steps them.
[[nodiscard]] torch::nn::AnyModule frozen_batch_norm(std::int64_t channels);

/// Stops training of the stem and of the first `stages` stages.
void freeze(ResNet& network, std::size_t stages);

/// Reads the stem and the stages from a safetensors file with torchvision's names
/// (`layer1.0.conv1.weight`), which timm uses too. Other tensors in the file, such as the
/// classifier `fc`, are skipped. The network must have been made with `batch_norm` or
/// `frozen_batch_norm`. Throws std::runtime_error if a tensor of the network is missing,
/// kolo::InvalidArgument if one has another shape, and kolo::CheckpointError if the file cannot be
/// read. Local.
void load_pretrained(ResNet& network, const std::filesystem::path& file);

/// Converts images whose pixels v, from 0 to 255, are stored as (v - center) / scale to the input
/// of torchvision's networks: the colors of ImageNet have mean 0 and standard deviation 1.
class ImageNetColors {
 public:
  ImageNetColors(double center, double scale);

  /// Images [n, 3, h, w], on any device.
  [[nodiscard]] torch::Tensor operator()(const torch::Tensor& images) const;

 private:
  torch::Tensor factor_, offset_;
};

}  // namespace examples
