// RetinaNet (Lin et al., 2017, https://arxiv.org/abs/1708.02002): a residual network, a pyramid of
// its features, and two heads that all levels of the pyramid share.
#pragma once

// clang 14 can read LibTorch 1.13 in C++20 only if this comes first.
#include <ATen/core/ivalue.h>

#include <torch/nn/module.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/pimpl.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "resnet.hpp"

namespace retinanet {

struct NetworkOptions {
  std::string backbone = "resnet50";  ///< Or `resnet18`, and `tiny` for tests.
  std::int64_t channels = 256;        ///< Of the pyramid and the heads.
  std::int64_t head_layers = 4;       ///< Convolutions before each head's last.
  std::int64_t categories = 80;
};

/// Of each anchor, in the order of `make_anchors`.
struct Outputs {
  torch::Tensor logits;   ///< [pictures, anchors, categories]
  torch::Tensor offsets;  ///< [pictures, anchors, 4]: see Offsets.
};

/// Levels 3 to 5 of the backbone, each with what the one above knows added, and 6 and 7 made from
/// level 5.
class PyramidImpl : public torch::nn::Module {
 public:
  PyramidImpl(const std::array<std::int64_t, 3>& in, std::int64_t channels);
  [[nodiscard]] std::vector<torch::Tensor> forward(const std::array<torch::Tensor, 3>& features);

 private:
  std::array<torch::nn::Sequential, 3> sideways_, smooth_;
  torch::nn::Sequential level6_, level7_;
};
TORCH_MODULE(Pyramid);

/// All normalisations are group normalisations.
class RetinaNetImpl : public torch::nn::Module {
 public:
  /// With initial weights from LibTorch's random numbers. Throws std::invalid_argument for a
  /// backbone that there is not.
  explicit RetinaNetImpl(const NetworkOptions& options);

  /// Pictures [n, 3, side, side].
  [[nodiscard]] Outputs forward(const torch::Tensor& pictures);

 private:
  std::int64_t categories_;
  examples::ResNet backbone_;
  Pyramid pyramid_;
  torch::nn::Sequential classes_, boxes_;
};
TORCH_MODULE(RetinaNet);

}  // namespace retinanet
