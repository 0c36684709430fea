// SPDX-License-Identifier: Apache-2.0
// Causal attention with several heads, forward and backward.
//
// `qkv` is [batch * length][3 * width]: query, key and value of each token, each with its heads one
// after the other. A token attends to itself and to earlier tokens.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "matrix.hpp"

namespace gpt {

struct AttentionShape {
  std::size_t batch, length, width, heads;

  [[nodiscard]] std::size_t head_width() const { return width / heads; }
};

namespace detail {

/// Converts scores to probabilities in place: row t over the columns 0 to t. The rest becomes zero.
template <typename Real>
void causal_softmax(Real* scores, std::size_t length, Real scale) {
  for (std::size_t t = 0; t < length; ++t) {
    Real* row = scores + t * length;
    const Real largest = *std::max_element(row, row + t + 1);
    Real sum = 0;
    for (std::size_t i = 0; i <= t; ++i) sum += row[i] = std::exp(scale * (row[i] - largest));
    for (std::size_t i = 0; i <= t; ++i) row[i] /= sum;
    std::fill(row + t + 1, row + length, Real(0));
  }
}

/// Converts the gradient of the probabilities to that of the scores, in place.
template <typename Real>
void causal_softmax_backward(Real* gradient, const Real* probabilities, std::size_t length,
                             Real scale) {
  for (std::size_t t = 0; t < length; ++t) {
    Real* d = gradient + t * length;
    const Real* p = probabilities + t * length;
    Real dot = 0;
    for (std::size_t i = 0; i <= t; ++i) dot += d[i] * p[i];
    for (std::size_t i = 0; i <= t; ++i) d[i] = scale * p[i] * (d[i] - dot);
    std::fill(d + t + 1, d + length, Real(0));
  }
}

}  // namespace detail

/// `out` is [batch * length][width]. `probabilities`, which backward needs, is
/// [batch][heads][length][length].
template <typename Real>
void attention_forward(Real* out, Real* probabilities, const Real* qkv,
                       const AttentionShape& shape) {
  const auto [batch, length, width, heads] = shape;
  const std::size_t part = shape.head_width();
  const Real scale = 1 / std::sqrt(static_cast<Real>(part));
  std::vector<Real> key(part * length);
  std::fill_n(out, batch * length * width, Real(0));
  std::fill_n(probabilities, batch * heads * length * length, Real(0));
  for (std::size_t b = 0; b < batch; ++b) {
    for (std::size_t h = 0; h < heads; ++h) {
      const Real* q = qkv + b * length * 3 * width + h * part;
      const Real* k = q + width;
      const Real* v = k + width;
      Real* p = probabilities + (b * heads + h) * length * length;
      transpose(k, 3 * width, key.data(), length, part);
      add_product({q, 3 * width}, key.data(), length, p, length, length, part, length);
      detail::causal_softmax(p, length, scale);
      add_product({p, length}, v, 3 * width, out + b * length * width + h * part, width, length,
                  length, part);
    }
  }
}

/// Writes `d_qkv`.
template <typename Real>
void attention_backward(Real* d_qkv, const Real* d_out, const Real* qkv, const Real* probabilities,
                        const AttentionShape& shape) {
  const auto [batch, length, width, heads] = shape;
  const std::size_t part = shape.head_width();
  const Real scale = 1 / std::sqrt(static_cast<Real>(part));
  std::vector<Real> value(part * length);
  std::vector<Real> d_scores(length * length);
  std::fill_n(d_qkv, batch * length * 3 * width, Real(0));
  for (std::size_t b = 0; b < batch; ++b) {
    for (std::size_t h = 0; h < heads; ++h) {
      const std::size_t first = b * length * 3 * width + h * part;
      const Real* q = qkv + first;
      const Real* k = q + width;
      const Real* v = k + width;
      const Real* p = probabilities + (b * heads + h) * length * length;
      const Real* d = d_out + b * length * width + h * part;
      Real* dq = d_qkv + first;
      Real* dk = dq + width;
      Real* dv = dk + width;
      add_product({p, 1, length}, d, width, dv, 3 * width, length, length, part);
      transpose(v, 3 * width, value.data(), length, part);
      std::fill(d_scores.begin(), d_scores.end(), Real(0));
      add_product({d, width}, value.data(), length, d_scores.data(), length, length, part, length);
      detail::causal_softmax_backward(d_scores.data(), p, length, scale);
      const Real* ds = d_scores.data();
      add_product({ds, length}, k, 3 * width, dq, 3 * width, length, length, part);
      add_product({ds, 1, length}, q, 3 * width, dk, 3 * width, length, length, part);
    }
  }
}

}  // namespace gpt
