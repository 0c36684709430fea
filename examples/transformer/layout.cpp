// SPDX-License-Identifier: Apache-2.0
#include "layout.hpp"

#include <algorithm>
#include <cmath>

#include "random.hpp"

namespace gpt {
namespace {

/// Allocates consecutive ranges.
class Allotment {
 public:
  explicit Allotment(Layout& layout) : layout_(layout) {}

  Range vector(std::size_t size) {
    const Range range{layout_.size, size};
    layout_.size += size;
    return range;
  }
  Range matrix(std::size_t rows, std::size_t columns) {
    layout_.matrices.push_back(vector(rows * columns));
    return layout_.matrices.back();
  }
  void end_piece(const std::string& name) {
    layout_.pieces.push_back({name, {piece_begin_, layout_.size - piece_begin_}});
    piece_begin_ = layout_.size;
  }

 private:
  Layout& layout_;
  std::size_t piece_begin_ = 0;
};

BlockLayout make_block(Allotment& memory, std::size_t width) {
  BlockLayout block;
  block.norm1_scale = memory.vector(width);
  block.norm1_shift = memory.vector(width);
  block.qkv_weight = memory.matrix(width, 3 * width);
  block.qkv_bias = memory.vector(3 * width);
  block.out_weight = memory.matrix(width, width);
  block.out_bias = memory.vector(width);
  block.norm2_scale = memory.vector(width);
  block.norm2_shift = memory.vector(width);
  block.up_weight = memory.matrix(width, 4 * width);
  block.up_bias = memory.vector(4 * width);
  block.down_weight = memory.matrix(4 * width, width);
  block.down_bias = memory.vector(width);
  return block;
}

void fill(std::span<float> parameters, Range range, float value) {
  std::ranges::fill(parameters.subspan(range.begin, range.size), value);
}

}  // namespace

Layout::Layout(const Config& config) {
  Allotment memory(*this);
  token_embedding = memory.matrix(config.vocabulary, config.width);
  position_embedding = memory.matrix(config.context, config.width);
  memory.end_piece("embeddings");
  for (std::size_t i = 0; i < config.layers; ++i) {
    blocks.push_back(make_block(memory, config.width));
    memory.end_piece("block." + std::to_string(i));
  }
  norm_scale = memory.vector(config.width);
  norm_shift = memory.vector(config.width);
  memory.end_piece("norm");
}

void initialize(std::span<float> parameters, const Layout& layout, const Config& config,
                std::uint64_t seed) {
  std::ranges::fill(parameters, 0.0F);
  Random random(seed);
  for (const Range& matrix : layout.matrices)
    for (float& weight : parameters.subspan(matrix.begin, matrix.size))
      weight = 0.02F * static_cast<float>(random.normal());
  // Initial weights of layers that add to the residual stream shrink with the number of such
  // layers, so that the variance of the stream does not grow with the depth.
  const float smaller = 1.0F / std::sqrt(2.0F * static_cast<float>(config.layers));
  for (const BlockLayout& block : layout.blocks) {
    for (const Range& matrix : {block.out_weight, block.down_weight})
      for (float& weight : parameters.subspan(matrix.begin, matrix.size)) weight *= smaller;
    fill(parameters, block.norm1_scale, 1.0F);
    fill(parameters, block.norm2_scale, 1.0F);
  }
  fill(parameters, layout.norm_scale, 1.0F);
}

}  // namespace gpt
