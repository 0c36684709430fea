// What training makes small, as sums over the anchors of a batch.
#pragma once

// clang 14 can read LibTorch 1.13 in C++20 only if this comes first.
#include <ATen/core/ivalue.h>

#include <torch/types.h>

namespace retinanet {

/// The focal loss (Lin et al., 2017, https://arxiv.org/abs/1708.02002, equation 5, with alpha 0.25
/// and gamma 2): cross-entropy in which what is known well already counts little, summed over
/// anchors and categories. Logits are [n, anchors, categories]. Labels [n, anchors] are categories,
/// `background` or `ignored`.
[[nodiscard]] torch::Tensor focal_loss(const torch::Tensor& logits, const torch::Tensor& labels);

/// For a difference d between an offset and the one wanted 4.5 d^2 if d is below 1/9, else d -
/// 1/18: summed over the four offsets of the anchors with a category. Offsets and `wanted` are [n,
/// anchors, 4].
[[nodiscard]] torch::Tensor box_loss(const torch::Tensor& offsets, const torch::Tensor& wanted,
                                     const torch::Tensor& labels);

}  // namespace retinanet
