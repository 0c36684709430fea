// SPDX-License-Identifier: Apache-2.0
#include "layout.hpp"

#include <algorithm>
#include <cmath>

#include "memory.hpp"

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

void Initializer::fill(std::size_t piece, std::span<float> values) {
  const Range whole = layout_.pieces[piece].range;
  const auto part = [&](Range range) {
    return values.subspan(range.begin - whole.begin, range.size);
  };
  std::ranges::fill(values, 0.0F);
  for (const Range& matrix : layout_.matrices)
    if (matrix.begin >= whole.begin && matrix.begin < whole.begin + whole.size)
      for (float& weight : part(matrix)) weight = 0.02F * static_cast<float>(random_.normal());
  if (piece + 1 == layout_.pieces.size()) std::ranges::fill(part(layout_.norm_scale), 1.0F);
  if (piece == 0 || piece + 1 == layout_.pieces.size()) return;
  // Initial weights of layers that add to the residual stream shrink with the number of such
  // layers, so that the variance of the stream does not grow with the depth.
  const float smaller = 1.0F / std::sqrt(2.0F * static_cast<float>(layout_.blocks.size()));
  const BlockLayout& block = layout_.blocks[piece - 1];
  for (const Range& matrix : {block.out_weight, block.down_weight})
    for (float& weight : part(matrix)) weight *= smaller;
  std::ranges::fill(part(block.norm1_scale), 1.0F);
  std::ranges::fill(part(block.norm2_scale), 1.0F);
}

void initialize(std::span<float> parameters, const Layout& layout, std::uint64_t seed) {
  Initializer initializer(layout, seed);
  for (std::size_t i = 0; i < layout.pieces.size(); ++i)
    initializer.fill(i,
                     parameters.subspan(layout.pieces[i].range.begin, layout.pieces[i].range.size));
}

std::vector<kolo::ShardedModel::Unit> units_of(const Layout& layout) {
  const auto parameter = [](const Piece& piece) {
    return kolo::ShardedModel::Parameter{piece.name, static_cast<std::int64_t>(piece.range.size)};
  };
  std::vector<kolo::ShardedModel::Unit> units{
      {"root", {parameter(layout.pieces.front()), parameter(layout.pieces.back())}}};
  for (std::size_t i = 1; i + 1 < layout.pieces.size(); ++i)
    units.push_back({"layer." + std::to_string(i - 1), {parameter(layout.pieces[i])}});
  return units;
}

}  // namespace gpt
