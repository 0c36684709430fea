// SPDX-License-Identifier: Apache-2.0
// Shared by the Adasums of all backends: the conversion of tensors to the vectors that are
// combined, and the order of combination. All backends combine the same blocks in the same order,
// so that their results have the same bits.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "backend/backend.hpp"
#include "base/dtype.hpp"
#include "fusion/pack.hpp"
#include "reduction/reduce.hpp"

namespace kolo::internal::backend {

/// The number of elements of a block. The dot products of a vector's blocks are summed.
inline constexpr std::int64_t adasum_block = 32 << 10;

/// A tensor of an Adasum, with the type in which it travels.
struct AdasumVector {
  const BatchTensor* tensor = nullptr;
  DType wire = DType::f32;

  AdasumVector(const BatchTensor& of, Compression compression)
      : tensor(&of), wire(fusion::wire_type(of.dtype, ReduceOp::adasum, compression)) {}

  [[nodiscard]] std::int64_t elements() const { return tensor->elements(); }
  [[nodiscard]] std::int64_t bytes() const { return elements() * signed_size_of(wire); }

  /// Converts and scales elements of the input, and writes them to `vector`.
  void read(const Batch& batch, std::int64_t offset, std::int64_t elements,
            std::byte* vector) const {
    const auto* const input = static_cast<const std::byte*>(tensor->input);
    std::byte* const to = vector + offset * signed_size_of(wire);
    fusion::convert(input + offset * signed_size_of(tensor->dtype), tensor->dtype, elements, to,
                    wire);
    scale(to, batch.kind.prescale, elements);
  }
  /// Scales elements of `vector` in place, and writes them to the output.
  void write(const Batch& batch, std::int64_t offset, std::int64_t elements,
             std::byte* vector) const {
    auto* const output = static_cast<std::byte*>(tensor->output);
    std::byte* const from = vector + offset * signed_size_of(wire);
    scale(from, batch.kind.postscale, elements);
    fusion::convert(from, wire, elements, output + offset * signed_size_of(tensor->dtype),
                    tensor->dtype);
  }

 private:
  void scale(std::byte* data, double factor, std::int64_t elements) const {
    const std::byte* const inputs[] = {data};
    reduction::reduce({.op = ReduceOp::sum, .dtype = wire, .prescale = factor}, inputs, elements,
                      data);
  }
};

/// Two ranks whose vectors are combined; the first rank gets the result. First, the ranks beyond
/// the largest power of two are paired with the ranks from 0 on; then come pairs at doubling
/// distances.
struct AdasumPair {
  int first = 0;
  int second = 0;
};
[[nodiscard]] inline std::vector<AdasumPair> adasum_pairs(int ranks) {
  const int paired = static_cast<int>(std::bit_floor(static_cast<unsigned>(ranks)));
  std::vector<AdasumPair> pairs;
  for (int extra = paired; extra < ranks; ++extra) pairs.push_back({extra - paired, extra});
  for (int distance = 1; distance < paired; distance *= 2)
    for (int first = 0; first < paired; first += 2 * distance)
      pairs.push_back({first, first + distance});
  return pairs;
}

}  // namespace kolo::internal::backend
