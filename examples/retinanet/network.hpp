// SPDX-License-Identifier: Apache-2.0
// RetinaNet (Lin et al., 2017, https://arxiv.org/abs/1708.02002): a residual network, a pyramid of
// its features, and two heads shared by all levels of the pyramid; with their losses.
#pragma once

// clang 14 can read LibTorch 1.13 in C++20 only if this comes first.
#include <ATen/core/ivalue.h>

#include <torch/nn/module.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/pimpl.h>

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "pretrained.hpp"
#include "resnet.hpp"

namespace retinanet {

struct NetworkOptions {
  std::string backbone = "resnet50";  ///< `resnet50`, `resnet18`, or `tiny` for tests.
  std::int64_t channels = 256;        ///< Channels of the pyramid and the heads.
  std::int64_t head_layers = 4;       ///< Convolutions of each head before its last one.
  std::int64_t categories = 80;
  bool pretrained = false;  ///< The backbone is built for the weights that `load_backbone` reads.
};

/// Outputs per anchor, in the order of `make_anchors`.
struct Outputs {
  torch::Tensor logits;   ///< [pictures, anchors, categories]
  torch::Tensor offsets;  ///< [pictures, anchors, 4]: see Offsets.
};

/// Feature pyramid: levels 3 to 5 of the backbone, each with the level above added, and levels 6
/// and 7, computed from level 5.
class PyramidImpl : public torch::nn::Module {
 public:
  PyramidImpl(const std::array<std::int64_t, 3>& in, std::int64_t channels);
  [[nodiscard]] std::vector<torch::Tensor> forward(const std::array<torch::Tensor, 3>& features);

 private:
  std::array<torch::nn::Sequential, 3> sideways_, smooth_;
  torch::nn::Sequential level6_, level7_;
};
TORCH_MODULE(Pyramid);

/// All normalizations are group normalizations, except in a pretrained backbone: its batch
/// normalizations are frozen, and so are its stem and its first stage, as usual for this network.
class RetinaNetImpl : public torch::nn::Module {
 public:
  /// Initial weights come from LibTorch's random numbers. Throws std::invalid_argument for an
  /// unknown backbone.
  explicit RetinaNetImpl(const NetworkOptions& options);

  /// Takes images [n, 3, side, side].
  [[nodiscard]] Outputs forward(const torch::Tensor& pictures);

  /// The outputs of the backbone's four stages.
  [[nodiscard]] std::array<torch::Tensor, 4> features(const torch::Tensor& pictures);

  /// Reads the weights of a `pretrained` backbone, as `examples::load_pretrained` does. Local.
  void load_backbone(const std::filesystem::path& file);

 private:
  std::int64_t categories_;
  std::optional<examples::ImageNetColors> colors_;
  examples::ResNet backbone_;
  Pyramid pyramid_;
  torch::nn::Sequential classes_, boxes_;
};
TORCH_MODULE(RetinaNet);

/// The focal loss (Lin et al., 2017, equation 5, with alpha 0.25 and gamma 2): a cross-entropy in
/// which well-classified examples count little, summed over anchors and categories. Logits are
/// [n, anchors, categories]. Labels [n, anchors] are categories, `background` or `ignored`.
[[nodiscard]] torch::Tensor focal_loss(const torch::Tensor& logits, const torch::Tensor& labels);

/// The smooth L1 loss, summed over the four offsets of the anchors with a category: 4.5 d^2 for a
/// difference d below 1/9, else d - 1/18. `offsets` and `wanted` are [n, anchors, 4].
[[nodiscard]] torch::Tensor box_loss(const torch::Tensor& offsets, const torch::Tensor& wanted,
                                     const torch::Tensor& labels);

}  // namespace retinanet
