// SPDX-License-Identifier: Apache-2.0
// Adasum of two vectors: orthogonal components are added, parallel components are averaged (Maleki
// et al., 2020, https://arxiv.org/abs/2006.02924).
#pragma once

#include <cstddef>
#include <cstdint>

#include "kolo/types.hpp"

namespace kolo::internal::reduction {

struct Dots {
  double ab = 0.0;
  double aa = 0.0;
  double bb = 0.0;
};

/// The factors of the two vectors in their combination.
struct Shares {
  double of_a = 1.0;
  double of_b = 1.0;
};

/// Adds the dot products of `elements` elements of a floating-point type, computed in double. All
/// ranks must cut the vectors at the same places to get the same bits.
void add_dots(DType dtype, const std::byte* a, const std::byte* b, std::int64_t elements,
              Dots& dots);

/// 1 - a.b / (2 |a|^2) and 1 - a.b / (2 |b|^2). If one vector is zero, the other's factor is 1.
[[nodiscard]] Shares adasum_shares(const Dots& dots);

/// output = of_a * a + of_b * b, computed in double and rounded once. The output may be `a` or `b`.
void add_shares(DType dtype, const std::byte* a, const std::byte* b, const Shares& shares,
                std::int64_t elements, std::byte* output);

}  // namespace kolo::internal::reduction
