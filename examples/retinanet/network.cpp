// SPDX-License-Identifier: Apache-2.0
#include "network.hpp"

#include <torch/nn/init.h>
#include <torch/nn/modules/activation.h>
#include <torch/types.h>

#include <cmath>
#include <stdexcept>

#include "anchors.hpp"
#include "matching.hpp"
#include "sample.hpp"

namespace retinanet {
namespace {

namespace nn = torch::nn;

constexpr auto per_place = static_cast<std::int64_t>(anchors_per_place);

examples::ResNet make_backbone(const std::string& name, bool pretrained) {
  const auto norm = pretrained ? examples::frozen_batch_norm : examples::group_norm;
  if (name == "resnet50") return examples::make_resnet({.norm = norm});
  if (name == "resnet18") {
    return examples::make_resnet({.blocks = {2, 2, 2, 2}, .bottleneck = false, .norm = norm});
  }
  if (name == "tiny") {
    return examples::make_resnet(
        {.blocks = {1, 1, 1, 1}, .bottleneck = false, .width = 8, .norm = norm});
  }
  throw std::invalid_argument("there is no backbone '" + name + "'");
}

// A convolution that keeps or halves the size, and a normalization.
nn::Sequential layer(std::int64_t in, std::int64_t out, std::int64_t size,
                     std::int64_t stride = 1) {
  nn::Sequential both(
      nn::Conv2d(nn::Conv2dOptions(in, out, size).stride(stride).padding(size / 2).bias(false)));
  both->push_back(examples::group_norm(out));
  return both;
}

// The last convolution starts with small weights, so that its first outputs are equal everywhere.
nn::Sequential head(std::int64_t channels, std::int64_t layers, std::int64_t out, double bias) {
  nn::Sequential all;
  for (std::int64_t i = 0; i < layers; ++i) {
    const nn::Sequential next = layer(channels, channels, 3);
    for (const auto& module : *next) all->push_back(module);
    all->push_back(nn::ReLU(nn::ReLUOptions(true)));
  }
  nn::Conv2d last(nn::Conv2dOptions(channels, out, 3).padding(1));
  nn::init::normal_(last->weight, 0.0, 0.01);
  nn::init::constant_(last->bias, bias);
  all->push_back(last);
  return all;
}

// [n, 9 * values, h, w] to [n, h * w * 9, values].
torch::Tensor by_anchor(const torch::Tensor& output, std::int64_t values) {
  return output.permute({0, 2, 3, 1}).reshape({output.size(0), -1, values});
}

}  // namespace

PyramidImpl::PyramidImpl(const std::array<std::int64_t, 3>& in, std::int64_t channels)
    : level6_(register_module("level6", layer(channels, channels, 3, 2))),
      level7_(register_module("level7", layer(channels, channels, 3, 2))) {
  for (std::size_t i = 0; i < in.size(); ++i) {
    const std::string level = std::to_string(first_level + static_cast<int>(i));
    sideways_[i] = register_module("sideways" + level, layer(in[i], channels, 1));
    smooth_[i] = register_module("smooth" + level, layer(channels, channels, 3));
  }
}

std::vector<torch::Tensor> PyramidImpl::forward(const std::array<torch::Tensor, 3>& features) {
  std::vector<torch::Tensor> levels(features.size());
  torch::Tensor above;
  for (std::size_t i = features.size(); i-- > 0;) {
    torch::Tensor sum = sideways_[i]->forward(features[i]);
    if (above.defined()) {
      sum = sum + torch::upsample_nearest2d(above, {sum.size(2), sum.size(3)});
    }
    above = sum;
    levels[i] = smooth_[i]->forward(sum);
  }
  levels.push_back(level6_->forward(levels.back()));
  levels.push_back(level7_->forward(levels.back().relu()));
  return levels;
}

RetinaNetImpl::RetinaNetImpl(const NetworkOptions& options)
    : categories_(options.categories),
      backbone_(make_backbone(options.backbone, options.pretrained)),
      pyramid_(register_module(
          "pyramid",
          Pyramid(std::array{backbone_.channels[1], backbone_.channels[2], backbone_.channels[3]},
                  options.channels))),
      // Almost all anchors are background: each category starts with a probability of 0.01, which
      // keeps the first losses small.
      classes_(register_module("classes", head(options.channels, options.head_layers,
                                               per_place * options.categories, -std::log(99.0)))),
      boxes_(register_module("boxes",
                             head(options.channels, options.head_layers, per_place * 4, 0.0))) {
  register_module("stem", backbone_.stem);
  for (std::size_t i = 0; i < backbone_.stages.size(); ++i) {
    register_module("stage" + std::to_string(i + 1), backbone_.stages[i]);
  }
  if (!options.pretrained) return;
  colors_.emplace(sample_center, sample_scale);
  examples::freeze(backbone_, /*stages=*/1);
}

void RetinaNetImpl::load_backbone(const std::filesystem::path& file) {
  examples::load_pretrained(backbone_, file);
}

std::array<torch::Tensor, 4> RetinaNetImpl::features(const torch::Tensor& pictures) {
  std::array<torch::Tensor, 4> levels;
  torch::Tensor below = backbone_.stem->forward(colors_ ? (*colors_)(pictures) : pictures);
  for (std::size_t i = 0; i < levels.size(); ++i) {
    below = levels[i] = backbone_.stages[i]->forward(below);
  }
  return levels;
}

Outputs RetinaNetImpl::forward(const torch::Tensor& pictures) {
  const auto [level2, level3, level4, level5] = features(pictures);
  std::vector<torch::Tensor> logits, offsets;
  for (const torch::Tensor& level : pyramid_->forward({level3, level4, level5})) {
    logits.push_back(by_anchor(classes_->forward(level), categories_));
    offsets.push_back(by_anchor(boxes_->forward(level), 4));
  }
  return {.logits = torch::cat(logits, 1), .offsets = torch::cat(offsets, 1)};
}

torch::Tensor focal_loss(const torch::Tensor& logits, const torch::Tensor& labels) {
  constexpr double alpha = 0.25;
  const torch::Tensor counted = labels.ne(ignored).unsqueeze(2).to(logits.dtype());
  // One-hot over the categories; all zeros for background.
  const torch::Tensor truth =
      torch::arange(logits.size(2), labels.options()).eq(labels.unsqueeze(2)).to(logits.dtype());
  const torch::Tensor sign = 2 * truth - 1;
  // The probability of the correct answer.
  const torch::Tensor probability = torch::sigmoid(sign * logits);
  const torch::Tensor entropy = -torch::log_sigmoid(sign * logits);
  const torch::Tensor weight = alpha * truth + (1 - alpha) * (1 - truth);
  return (counted * weight * (1 - probability).square() * entropy).sum();
}

torch::Tensor box_loss(const torch::Tensor& offsets, const torch::Tensor& wanted,
                       const torch::Tensor& labels) {
  constexpr double beta = 1.0 / 9;
  const torch::Tensor found = labels.ge(0).unsqueeze(2);
  return torch::smooth_l1_loss(offsets.masked_select(found), wanted.masked_select(found),
                               at::Reduction::Sum, beta);
}

}  // namespace retinanet
