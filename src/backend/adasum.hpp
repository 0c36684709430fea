// SPDX-License-Identifier: Apache-2.0
// Shared by the backends' Adasums: how tensors become the vectors that are combined, and in which
// order. Since all backends combine the same blocks in the same order, all have the same bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "backend/backend.hpp"

namespace kolo::internal::backend {

/// Elements at a time. The dot products of blocks are added up.
inline constexpr std::int64_t adasum_block = 32 << 10;

/// A tensor of an Adasum, in the type in which it travels.
struct AdasumVector {
  const BatchTensor* tensor = nullptr;
  DType wire = DType::f32;

  AdasumVector(const BatchTensor& of, Compression compression);

  [[nodiscard]] std::int64_t elements() const { return tensor->elements(); }
  [[nodiscard]] std::int64_t bytes() const { return elements() * signed_size_of(wire); }
  /// Writes elements of the input to `vector`, scaled.
  void read(const Batch& batch, std::int64_t offset, std::int64_t elements,
            std::byte* vector) const;
  /// Writes elements of `vector`, which it scales, to the output.
  void write(const Batch& batch, std::int64_t offset, std::int64_t elements,
             std::byte* vector) const;
};

/// The ranks beyond the largest power of two are first combined with the ranks from 0 on, and then
/// pairs at growing distances. Each vector is combined into the first of the pair.
struct AdasumPair {
  int first = 0;
  int second = 0;
};
[[nodiscard]] std::vector<AdasumPair> adasum_pairs(int ranks);

}  // namespace kolo::internal::backend
