// SPDX-License-Identifier: Apache-2.0
// The layers of a block, except attention: forward, and backward by hand.
//
// Activations are [rows][channels], with a row per token of the batch. A backward function writes
// the gradient of its input and adds to the gradients of its parameters, so that several passes
// accumulate.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numbers>
#include <span>
#include <vector>

#include "matrix.hpp"

namespace gpt {

// ---- out = in weight + bias, weight is [inputs][outputs] ----

template <typename Real>
void linear_forward(Real* out, const Real* in, const Real* weight, const Real* bias,
                    std::size_t rows, std::size_t inputs, std::size_t outputs) {
  for (std::size_t row = 0; row < rows; ++row) std::copy_n(bias, outputs, out + row * outputs);
  add_product({in, inputs}, weight, outputs, out, outputs, rows, inputs, outputs);
}

template <typename Real>
void linear_backward(Real* d_in, Real* d_weight, Real* d_bias, const Real* d_out, const Real* in,
                     const Real* weight, std::size_t rows, std::size_t inputs,
                     std::size_t outputs) {
  for (std::size_t row = 0; row < rows; ++row)
    for (std::size_t j = 0; j < outputs; ++j) d_bias[j] += d_out[row * outputs + j];
  add_product({in, 1, inputs}, d_out, outputs, d_weight, outputs, inputs, rows, outputs);
  std::vector<Real> transposed(inputs * outputs);
  transpose(weight, outputs, transposed.data(), inputs, outputs);
  std::fill_n(d_in, rows * inputs, Real(0));
  add_product({d_out, outputs}, transposed.data(), inputs, d_in, inputs, rows, outputs, inputs);
}

// ---- layer normalization: each row gets mean 0 and variance 1, then a scale and a shift ----

/// Values that forward keeps for backward.
template <typename Real>
struct NormStatistics {
  std::vector<Real> mean, inverse_deviation;  // one value per row
};

template <typename Real>
void norm_forward(Real* out, NormStatistics<Real>& statistics, const Real* in, const Real* scale,
                  const Real* shift, std::size_t rows, std::size_t channels) {
  statistics.mean.resize(rows);
  statistics.inverse_deviation.resize(rows);
  for (std::size_t row = 0; row < rows; ++row) {
    const Real* x = in + row * channels;
    Real mean = 0;
    for (std::size_t i = 0; i < channels; ++i) mean += x[i];
    mean /= static_cast<Real>(channels);
    Real variance = 0;
    for (std::size_t i = 0; i < channels; ++i) variance += (x[i] - mean) * (x[i] - mean);
    variance /= static_cast<Real>(channels);
    const Real inverse = 1 / std::sqrt(variance + Real(1e-5));
    for (std::size_t i = 0; i < channels; ++i)
      out[row * channels + i] = (x[i] - mean) * inverse * scale[i] + shift[i];
    statistics.mean[row] = mean;
    statistics.inverse_deviation[row] = inverse;
  }
}

/// Adds to `d_in`, because the residual stream also bypasses the normalization.
template <typename Real>
void norm_backward(Real* d_in, Real* d_scale, Real* d_shift, const Real* d_out, const Real* in,
                   const NormStatistics<Real>& statistics, const Real* scale, std::size_t rows,
                   std::size_t channels) {
  for (std::size_t row = 0; row < rows; ++row) {
    const Real* x = in + row * channels;
    const Real* dy = d_out + row * channels;
    const Real mean = statistics.mean[row];
    const Real inverse = statistics.inverse_deviation[row];
    Real along_one = 0;  // components of the gradient that the normalization removes
    Real along_x = 0;
    for (std::size_t i = 0; i < channels; ++i) {
      const Real normalized = (x[i] - mean) * inverse;
      d_scale[i] += dy[i] * normalized;
      d_shift[i] += dy[i];
      along_one += dy[i] * scale[i];
      along_x += dy[i] * scale[i] * normalized;
    }
    along_one /= static_cast<Real>(channels);
    along_x /= static_cast<Real>(channels);
    for (std::size_t i = 0; i < channels; ++i) {
      const Real normalized = (x[i] - mean) * inverse;
      d_in[row * channels + i] += inverse * (dy[i] * scale[i] - along_one - normalized * along_x);
    }
  }
}

// ---- GELU, in the form with tanh (Hendrycks and Gimpel, 2016, https://arxiv.org/abs/1606.08415)

template <typename Real>
constexpr Real gelu_cubic = Real(0.044715);

template <typename Real>
void gelu_forward(Real* out, const Real* in, std::size_t count) {
  const Real factor = std::sqrt(2 / std::numbers::pi_v<Real>);
  for (std::size_t i = 0; i < count; ++i) {
    const Real x = in[i];
    out[i] = x / 2 * (1 + std::tanh(factor * (x + gelu_cubic<Real> * x * x * x)));
  }
}

/// Converts the gradient of the output to that of the input, in place.
template <typename Real>
void gelu_backward(Real* gradient, const Real* in, std::size_t count) {
  const Real factor = std::sqrt(2 / std::numbers::pi_v<Real>);
  for (std::size_t i = 0; i < count; ++i) {
    const Real x = in[i];
    const Real t = std::tanh(factor * (x + gelu_cubic<Real> * x * x * x));
    const Real slope = factor * (1 + 3 * gelu_cubic<Real> * x * x);
    gradient[i] *= (1 + t) / 2 + x / 2 * (1 - t * t) * slope;
  }
}

// ---- cross-entropy ----

/// Returns the mean loss of the rows, in nats, and replaces the logits by its gradient.
template <typename Real>
double cross_entropy(Real* logits, std::span<const std::uint8_t> targets, std::size_t classes) {
  double loss = 0.0;
  const Real share = 1 / static_cast<Real>(targets.size());
  for (std::size_t row = 0; row < targets.size(); ++row) {
    Real* x = logits + row * classes;
    const Real largest = *std::max_element(x, x + classes);
    const Real at_target = x[targets[row]] - largest;
    Real sum = 0;
    for (std::size_t i = 0; i < classes; ++i) sum += x[i] = std::exp(x[i] - largest);
    for (std::size_t i = 0; i < classes; ++i) x[i] *= share / sum;
    x[targets[row]] -= share;
    loss += static_cast<double>(std::log(sum) - at_target);
  }
  return loss / static_cast<double>(targets.size());
}

}  // namespace gpt
