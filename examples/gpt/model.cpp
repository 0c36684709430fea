// SPDX-License-Identifier: Apache-2.0
#include "model.hpp"

#include <torch/nn/modules/container/modulelist.h>
#include <torch/types.h>

#include <cmath>
#include <limits>

namespace large {
namespace {

namespace nn = torch::nn;

nn::LayerNorm make_norm(std::int64_t width) { return nn::LayerNorm(nn::LayerNormOptions({width})); }

}  // namespace

BlockImpl::BlockImpl(const Shape& shape)
    : heads_(shape.heads),
      norm1_(register_module("norm1", make_norm(shape.width))),
      norm2_(register_module("norm2", make_norm(shape.width))),
      qkv_(register_module("qkv", nn::Linear(shape.width, 3 * shape.width))),
      project_(register_module("project", nn::Linear(shape.width, shape.width))),
      up_(register_module("up", nn::Linear(shape.width, 4 * shape.width))),
      down_(register_module("down", nn::Linear(4 * shape.width, shape.width))) {}

torch::Tensor BlockImpl::attend(const torch::Tensor& input) {
  const std::int64_t windows = input.size(0);
  const std::int64_t tokens = input.size(1);
  const std::int64_t width = input.size(2);
  const auto split = qkv_(input).reshape({windows, tokens, 3, heads_, width / heads_});
  const auto part = [&](std::int64_t i) { return split.select(2, i).transpose(1, 2); };
  const double scale = 1.0 / std::sqrt(static_cast<double>(width / heads_));
  const auto later = torch::ones({tokens, tokens}, torch::kBool).triu(/*diagonal=*/1);
  const auto scores = (torch::matmul(part(0), part(1).transpose(2, 3)) * scale)
                          .masked_fill(later, -std::numeric_limits<double>::infinity());
  const auto mixed = torch::matmul(torch::softmax(scores, -1), part(2));
  return project_(mixed.transpose(1, 2).reshape({windows, tokens, width}));
}

torch::Tensor BlockImpl::forward(torch::Tensor input) {
  input = input + attend(norm1_(input));
  return input + down_(torch::gelu(up_(norm2_(input))));
}

GptImpl::GptImpl(const Shape& shape)
    : tokens_(register_module("tokens", nn::Embedding(shape.vocabulary, shape.width))),
      positions_(register_module("positions", nn::Embedding(shape.context, shape.width))),
      norm_(nullptr),
      head_(nullptr) {
  // The list gives the blocks their names. Its own calls of forward would pass over Sharded.
  auto list = register_module("blocks", nn::ModuleList());
  for (std::int64_t i = 0; i < shape.layers; ++i) {
    blocks_.emplace_back(shape);
    list->push_back(blocks_.back().ptr());
  }
  norm_ = register_module("norm", make_norm(shape.width));
  head_ = register_module("head", nn::Linear(shape.width, shape.vocabulary));
}

torch::Tensor GptImpl::forward(torch::Tensor tokens) {
  auto hidden = tokens_(tokens) + positions_(torch::arange(tokens.size(1)));
  for (auto& block : blocks_) hidden = block(hidden);
  return head_(norm_(hidden));
}

}  // namespace large
