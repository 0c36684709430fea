// SPDX-License-Identifier: Apache-2.0
// A GPT for LibTorch in units that ranks can share: each block, and the rest of the model.
#pragma once

#include <kolo/torch.hpp>

// After kolo/torch.hpp, as clang 14 needs it.
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include <cstdint>
#include <vector>

namespace large {

struct Shape {
  std::int64_t layers = 14;
  std::int64_t width = 768;
  std::int64_t heads = 12;
  std::int64_t context = 128;  // tokens that a window has
  std::int64_t vocabulary = 256;
};

/// Attention to earlier tokens, and a perceptron; both add to their input.
struct BlockImpl : torch::nn::Module {
  explicit BlockImpl(const Shape& shape);
  /// `input`: windows x tokens x width.
  torch::Tensor forward(torch::Tensor input);

 private:
  [[nodiscard]] torch::Tensor attend(const torch::Tensor& input);

  std::int64_t heads_;
  torch::nn::LayerNorm norm1_, norm2_;
  torch::nn::Linear qkv_, project_, up_, down_;
};
TORCH_MODULE(Block);

struct GptImpl : torch::nn::Module {
  explicit GptImpl(const Shape& shape);
  /// Scores of the token that follows each of `tokens`: windows x tokens x vocabulary.
  torch::Tensor forward(torch::Tensor tokens);

 private:
  torch::nn::Embedding tokens_, positions_;
  std::vector<kolo::Sharded<Block>> blocks_{};  // KOLO: in place of std::vector<Block>
  torch::nn::LayerNorm norm_;
  torch::nn::Linear head_;
};
TORCH_MODULE(Gpt);

}  // namespace large
