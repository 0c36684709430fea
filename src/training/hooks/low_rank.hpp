// SPDX-License-Identifier: Apache-2.0
// Small dense linear algebra for approximations of low rank. Matrices are row-major f32.
#pragma once

#include <cstdint>

namespace kolo::internal {

// The code fixes the order of all sums, and is compiled without fused multiply-add, so that the
// same inputs give the same bits on any processor. The arguments of a call must not overlap in
// memory.

/// The sizes of a rows x columns matrix that is approximated by `left * right`, where `left` is
/// rows x rank and `right` is rank x columns.
struct LowRank {
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t rank;

  [[nodiscard]] std::int64_t left_size() const { return rows * rank; }
  [[nodiscard]] std::int64_t right_size() const { return rank * columns; }
  [[nodiscard]] std::int64_t size() const { return rows * columns; }
};

/// left = matrix * transposed right.
void multiply_by_right(const LowRank& shape, const float* matrix, const float* right, float* left);

/// right = transposed left * matrix.
void multiply_by_left(const LowRank& shape, const float* matrix, const float* left, float* right);

/// matrix = factor * left * right.
void expand(const LowRank& shape, const float* left, const float* right, float factor,
            float* matrix);

/// rest = matrix - left * right.
void subtract_product(const LowRank& shape, const float* matrix, const float* left,
                      const float* right, float* rest);

/// Makes the columns of a rows x rank matrix orthonormal, by Gram-Schmidt with a second pass over
/// each. A column that depends on earlier ones, or is zero, becomes zero.
void orthonormalize_columns(std::int64_t rows, std::int64_t rank, float* matrix);

/// Makes the rows of a rank x columns matrix orthonormal in the same way.
void orthonormalize_rows(std::int64_t rank, std::int64_t columns, float* matrix);

/// Fills `to` with pseudo-random numbers from -1 to 1, the same on any processor. Each `stream`
/// gives other numbers.
void fill_pseudo_randomly(std::uint64_t stream, std::int64_t count, float* to);

/// True if no element is infinite or NaN.
[[nodiscard]] bool all_finite(const float* from, std::int64_t count);

}  // namespace kolo::internal
