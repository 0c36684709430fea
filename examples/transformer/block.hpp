// SPDX-License-Identifier: Apache-2.0
// One block of the network: attention, then two dense layers. Each takes the normalized residual
// stream and adds to it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "attention.hpp"
#include "layers.hpp"
#include "layout.hpp"

namespace gpt {

template <typename Real>
class Block {
 public:
  /// `parameters` and `gradients`, below, are those of this block alone.
  explicit Block(const BlockLayout& layout) : at_(layout) {}

  /// Returns the residual stream after the block. Keeps the values that backward needs, including a
  /// pointer to `in`, which must stay unchanged until then.
  const Real* forward(const Real* parameters, const Real* in, const AttentionShape& shape) {
    shape_ = shape;
    in_ = in;
    resize();
    const std::size_t rows = shape.batch * shape.length;
    const std::size_t width = shape.width;
    const auto of = [&](Range range) { return parameters + (range.begin - begin()); };

    norm_forward(normed1_.data(), statistics1_, in, of(at_.norm1_scale), of(at_.norm1_shift), rows,
                 width);
    linear_forward(qkv_.data(), normed1_.data(), of(at_.qkv_weight), of(at_.qkv_bias), rows, width,
                   3 * width);
    attention_forward(attended_.data(), probabilities_.data(), qkv_.data(), shape);
    linear_forward(middle_.data(), attended_.data(), of(at_.out_weight), of(at_.out_bias), rows,
                   width, width);
    for (std::size_t i = 0; i < rows * width; ++i) middle_[i] += in[i];

    norm_forward(normed2_.data(), statistics2_, middle_.data(), of(at_.norm2_scale),
                 of(at_.norm2_shift), rows, width);
    linear_forward(up_.data(), normed2_.data(), of(at_.up_weight), of(at_.up_bias), rows, width,
                   4 * width);
    gelu_forward(active_.data(), up_.data(), up_.size());
    linear_forward(out_.data(), active_.data(), of(at_.down_weight), of(at_.down_bias), rows,
                   4 * width, width);
    for (std::size_t i = 0; i < rows * width; ++i) out_[i] += middle_[i];
    return out_.data();
  }

  /// Converts the gradient of the stream after the block to that before the block, in place, and
  /// adds to the parameters' gradients.
  void backward(const Real* parameters, Real* gradients, Real* d_stream) {
    dense_backward(parameters, gradients, d_stream);
    attention_part_backward(parameters, gradients, d_stream);
  }

 private:
  [[nodiscard]] std::size_t begin() const { return at_.norm1_scale.begin; }

  void resize() {
    const std::size_t rows = shape_.batch * shape_.length;
    for (std::vector<Real>* narrow :
         {&normed1_, &attended_, &middle_, &normed2_, &out_, &d_narrow_})
      narrow->resize(rows * shape_.width);
    qkv_.resize(rows * 3 * shape_.width);
    up_.resize(rows * 4 * shape_.width);
    active_.resize(rows * 4 * shape_.width);
    d_wide_.resize(rows * 4 * shape_.width);
    probabilities_.resize(rows * shape_.heads * shape_.length);
  }

  void dense_backward(const Real* parameters, Real* gradients, Real* d_stream) {
    const std::size_t rows = shape_.batch * shape_.length;
    const std::size_t width = shape_.width;
    const auto of = [&](Range range) { return parameters + (range.begin - begin()); };
    const auto d = [&](Range range) { return gradients + (range.begin - begin()); };
    linear_backward(d_wide_.data(), d(at_.down_weight), d(at_.down_bias), d_stream, active_.data(),
                    of(at_.down_weight), rows, 4 * width, width);
    gelu_backward(d_wide_.data(), up_.data(), up_.size());
    linear_backward(d_narrow_.data(), d(at_.up_weight), d(at_.up_bias), d_wide_.data(),
                    normed2_.data(), of(at_.up_weight), rows, width, 4 * width);
    norm_backward(d_stream, d(at_.norm2_scale), d(at_.norm2_shift), d_narrow_.data(),
                  middle_.data(), statistics2_, of(at_.norm2_scale), rows, width);
  }

  void attention_part_backward(const Real* parameters, Real* gradients, Real* d_stream) {
    const std::size_t rows = shape_.batch * shape_.length;
    const std::size_t width = shape_.width;
    const auto of = [&](Range range) { return parameters + (range.begin - begin()); };
    const auto d = [&](Range range) { return gradients + (range.begin - begin()); };
    linear_backward(d_narrow_.data(), d(at_.out_weight), d(at_.out_bias), d_stream,
                    attended_.data(), of(at_.out_weight), rows, width, width);
    attention_backward(d_wide_.data(), d_narrow_.data(), qkv_.data(), probabilities_.data(),
                       shape_);
    linear_backward(d_narrow_.data(), d(at_.qkv_weight), d(at_.qkv_bias), d_wide_.data(),
                    normed1_.data(), of(at_.qkv_weight), rows, width, 3 * width);
    norm_backward(d_stream, d(at_.norm1_scale), d(at_.norm1_shift), d_narrow_.data(), in_,
                  statistics1_, of(at_.norm1_scale), rows, width);
  }

  BlockLayout at_;
  AttentionShape shape_{};
  const Real* in_ = nullptr;
  NormStatistics<Real> statistics1_, statistics2_;
  std::vector<Real> normed1_, qkv_, probabilities_, attended_, middle_;
  std::vector<Real> normed2_, up_, active_, out_;
  std::vector<Real> d_narrow_, d_wide_;  // for backward, one row per token
};

}  // namespace gpt
