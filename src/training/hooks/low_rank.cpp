// SPDX-License-Identifier: Apache-2.0
#include "training/hooks/low_rank.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <vector>

namespace kolo::internal {
namespace {

// The number of partial sums of a dot product, enough to fill the vectors of any instruction set.
// It is fixed, and the partial sums are added in the order of lanes, so that all processors compute
// the same bits.
constexpr std::int64_t lanes = 16;

template <typename T>
T dot(const float* a, const float* b, std::int64_t count) {
  std::array<T, lanes> sums{};
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes)
    for (std::int64_t lane = 0; lane < lanes; ++lane)
      sums[static_cast<std::size_t>(lane)] +=
          static_cast<T>(a[i + lane]) * static_cast<T>(b[i + lane]);
  for (; i < count; ++i)
    sums[static_cast<std::size_t>(i % lanes)] += static_cast<T>(a[i]) * static_cast<T>(b[i]);
  T sum = 0;
  for (const T lane : sums) sum += lane;
  return sum;
}

// to += factor * from.
void add_scaled(float factor, const float* from, std::int64_t count, float* to) {
  for (std::int64_t i = 0; i < count; ++i) to[i] += factor * from[i];
}

double norm(const float* vector, std::int64_t count) {
  return std::sqrt(dot<double>(vector, vector, count));
}

// Makes the vectors orthonormal by Gram-Schmidt, in two passes over each. Dot products are summed
// in f64: in f32, long vectors would not be orthogonal enough, and squares would overflow.
void orthonormalize(std::int64_t vectors, std::int64_t count, float* all) {
  constexpr double dependent = 1e-5;  // relative to the norm before
  for (std::int64_t i = 0; i < vectors; ++i) {
    float* const vector = all + i * count;
    const double before = norm(vector, count);
    for (int pass = 0; pass < 2; ++pass)
      for (std::int64_t k = 0; k < i; ++k) {
        const float* const earlier = all + k * count;
        add_scaled(static_cast<float>(-dot<double>(vector, earlier, count)), earlier, count,
                   vector);
      }
    const double after = norm(vector, count);
    const bool is_new = after > dependent * before && std::isfinite(after);
    const double factor = is_new ? 1.0 / after : 0.0;
    for (std::int64_t j = 0; j < count; ++j)
      vector[j] = static_cast<float>(static_cast<double>(vector[j]) * factor);
  }
}

// The finalizer of SplitMix64 (Steele et al., 2014).
std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27U)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31U);
}

}  // namespace

void multiply_by_right(const LowRank& shape, const float* matrix, const float* right, float* left) {
  for (std::int64_t i = 0; i < shape.rows; ++i)
    for (std::int64_t k = 0; k < shape.rank; ++k)
      left[i * shape.rank + k] =
          dot<float>(matrix + i * shape.columns, right + k * shape.columns, shape.columns);
}

void multiply_by_left(const LowRank& shape, const float* matrix, const float* left, float* right) {
  std::fill(right, right + shape.right_size(), 0.0F);
  for (std::int64_t i = 0; i < shape.rows; ++i)
    for (std::int64_t k = 0; k < shape.rank; ++k)
      add_scaled(left[i * shape.rank + k], matrix + i * shape.columns, shape.columns,
                 right + k * shape.columns);
}

void expand(const LowRank& shape, const float* left, const float* right, float factor,
            float* matrix) {
  std::fill(matrix, matrix + shape.size(), 0.0F);
  for (std::int64_t i = 0; i < shape.rows; ++i)
    for (std::int64_t k = 0; k < shape.rank; ++k)
      add_scaled(left[i * shape.rank + k] * factor, right + k * shape.columns, shape.columns,
                 matrix + i * shape.columns);
}

void subtract_product(const LowRank& shape, const float* matrix, const float* left,
                      const float* right, float* rest) {
  std::copy(matrix, matrix + shape.size(), rest);
  for (std::int64_t i = 0; i < shape.rows; ++i)
    for (std::int64_t k = 0; k < shape.rank; ++k)
      add_scaled(-left[i * shape.rank + k], right + k * shape.columns, shape.columns,
                 rest + i * shape.columns);
}

void orthonormalize_columns(std::int64_t rows, std::int64_t rank, float* matrix) {
  std::vector<float> transposed(static_cast<std::size_t>(rows * rank));
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t k = 0; k < rank; ++k)
      transposed[static_cast<std::size_t>(k * rows + i)] = matrix[i * rank + k];
  orthonormalize(rank, rows, transposed.data());
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t k = 0; k < rank; ++k)
      matrix[i * rank + k] = transposed[static_cast<std::size_t>(k * rows + i)];
}

void orthonormalize_rows(std::int64_t rank, std::int64_t columns, float* matrix) {
  orthonormalize(rank, columns, matrix);
}

void fill_pseudo_randomly(std::uint64_t stream, std::int64_t count, float* to) {
  constexpr std::uint64_t golden = 0x9e3779b97f4a7c15U;
  const std::uint64_t start = mix(stream + golden);
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint64_t bits = mix(start + golden * static_cast<std::uint64_t>(i + 1)) >> 40U;
    to[i] = static_cast<float>(bits) * 0x1p-23F - 1.0F;
  }
}

bool all_finite(const float* from, std::int64_t count) {
  constexpr std::uint32_t infinity = 0x7f800000U;
  std::uint32_t largest = 0;
  for (std::int64_t i = 0; i < count; ++i)
    largest = std::max(largest, std::bit_cast<std::uint32_t>(from[i]) & 0x7fffffffU);
  return largest < infinity;
}

}  // namespace kolo::internal
