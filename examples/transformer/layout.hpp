// SPDX-License-Identifier: Apache-2.0
// The layout of all parameters in one contiguous block of memory. Gradients and the optimizer's
// state use the same layout in blocks of their own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "random.hpp"

namespace gpt {

/// The shape of a network. `width` is a multiple of `heads`.
struct Config {
  std::size_t vocabulary = 256;  // bytes
  std::size_t context = 64;      // maximum number of tokens in a window
  std::size_t layers = 2;
  std::size_t heads = 4;
  std::size_t width = 64;

  friend bool operator==(const Config&, const Config&) = default;
};

/// A range of the block of memory.
struct Range {
  std::size_t begin = 0;
  std::size_t size = 0;
};

struct BlockLayout {
  Range norm1_scale, norm1_shift, qkv_weight, qkv_bias, out_weight, out_bias;
  Range norm2_scale, norm2_shift, up_weight, up_bias, down_weight, down_bias;
};

/// Adjacent parameters whose gradients become complete at the same time.
struct Piece {
  std::string name;
  Range range;
};

struct Layout {
  explicit Layout(const Config& config);

  Range token_embedding, position_embedding;
  std::vector<BlockLayout> blocks;
  Range norm_scale, norm_shift;

  std::vector<Range> matrices;  // weight decay applies to these
  std::vector<Piece> pieces;    // the whole block: embeddings, each layer, the last norm
  std::size_t size = 0;
};

/// Initial values as in GPT-2, equal on all ranks. Pieces must be filled in their order; the last
/// one may come earlier.
class Initializer {
 public:
  /// `layout` must outlive this object.
  Initializer(const Layout& layout, std::uint64_t seed) : layout_(layout), random_(seed) {}
  void fill(std::size_t piece, std::span<float> values);

 private:
  const Layout& layout_;
  Random random_;
};
void initialize(std::span<float> parameters, const Layout& layout, std::uint64_t seed);

}  // namespace gpt
