// SPDX-License-Identifier: Apache-2.0
// Shared by the Adasums of all backends: the conversion of tensors to the vectors that are
// combined, and the order of combination. All backends combine the same blocks in the same order,
// so that their results have the same bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "backend/backend.hpp"

namespace kolo::internal::backend {

/// The number of elements of a block. The dot products of a vector's blocks are summed.
inline constexpr std::int64_t adasum_block = 32 << 10;

/// A tensor of an Adasum, with the type in which it travels.
struct AdasumVector {
  const BatchTensor* tensor = nullptr;
  DType wire = DType::f32;

  AdasumVector(const BatchTensor& of, Compression compression);

  [[nodiscard]] std::int64_t elements() const { return tensor->elements(); }
  [[nodiscard]] std::int64_t bytes() const { return elements() * signed_size_of(wire); }
  /// Converts and scales elements of the input, and writes them to `vector`.
  void read(const Batch& batch, std::int64_t offset, std::int64_t elements,
            std::byte* vector) const;
  /// Scales elements of `vector` in place, and writes them to the output.
  void write(const Batch& batch, std::int64_t offset, std::int64_t elements,
             std::byte* vector) const;
};

/// Two ranks whose vectors are combined, into the first. The ranks beyond the largest power of two
/// are combined with the ranks from 0 on; then follow pairs at growing distances.
struct AdasumPair {
  int first = 0;
  int second = 0;
};
[[nodiscard]] std::vector<AdasumPair> adasum_pairs(int ranks);

}  // namespace kolo::internal::backend
