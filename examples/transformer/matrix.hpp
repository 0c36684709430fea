// SPDX-License-Identifier: Apache-2.0
// Products of small matrices: the loop nest that takes nearly all of the time.
#pragma once

#include <cstddef>

namespace gpt {

/// A matrix view: element (i, j) is `data[i * row_step + j * column_step]`. A transposed matrix, or
/// some columns of a wider one, needs no copy.
template <typename Real>
struct MatrixView {
  const Real* data;
  std::size_t row_step;
  std::size_t column_step = 1;
};

namespace detail {

// A tile of `rows` by `columns` elements of the result stays in registers while terms are added.
template <std::size_t rows, std::size_t columns, typename Real>
void add_tile(MatrixView<Real> a, const Real* b, std::size_t b_step, Real* c, std::size_t c_step,
              std::size_t terms) {
  Real sum[rows][columns] = {};
  for (std::size_t k = 0; k < terms; ++k) {
    for (std::size_t i = 0; i < rows; ++i) {
      const Real factor = a.data[i * a.row_step + k * a.column_step];
      for (std::size_t j = 0; j < columns; ++j) sum[i][j] += factor * b[k * b_step + j];
    }
  }
  for (std::size_t i = 0; i < rows; ++i)
    for (std::size_t j = 0; j < columns; ++j) c[i * c_step + j] += sum[i][j];
}

template <std::size_t rows, typename Real>
void add_rows(MatrixView<Real> a, const Real* b, std::size_t b_step, Real* c, std::size_t c_step,
              std::size_t terms, std::size_t columns) {
  const std::size_t whole = columns - columns % 8;
  for (std::size_t j = 0; j < whole; j += 8)
    add_tile<rows, 8>(a, b + j, b_step, c + j, c_step, terms);
  for (std::size_t j = whole; j < columns; ++j)
    add_tile<rows, 1>(a, b + j, b_step, c + j, c_step, terms);
}

}  // namespace detail

/// c += a b, where a has `rows` rows and `terms` columns, and b has `terms` rows and `columns`
/// columns. The rows of b and c are `b_step` and `c_step` elements apart.
template <typename Real>
void add_product(MatrixView<Real> a, const Real* b, std::size_t b_step, Real* c, std::size_t c_step,
                 std::size_t rows, std::size_t terms, std::size_t columns) {
  const std::size_t whole = rows - rows % 4;
  for (std::size_t i = 0; i < whole; i += 4) {
    const MatrixView<Real> some{a.data + i * a.row_step, a.row_step, a.column_step};
    detail::add_rows<4>(some, b, b_step, c + i * c_step, c_step, terms, columns);
  }
  for (std::size_t i = whole; i < rows; ++i) {
    const MatrixView<Real> one{a.data + i * a.row_step, a.row_step, a.column_step};
    detail::add_rows<1>(one, b, b_step, c + i * c_step, c_step, terms, columns);
  }
}

/// out[j][i] = in[i][j]; the rows of `in` are `in_step` elements apart, those of `out` are
/// adjacent.
template <typename Real>
void transpose(const Real* in, std::size_t in_step, Real* out, std::size_t rows,
               std::size_t columns) {
  for (std::size_t i = 0; i < rows; ++i)
    for (std::size_t j = 0; j < columns; ++j) out[j * rows + i] = in[i * in_step + j];
}

}  // namespace gpt
