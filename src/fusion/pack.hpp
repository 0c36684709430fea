// SPDX-License-Identifier: Apache-2.0
// Copies the tensors of a batch into one buffer and back, with conversion.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kolo/types.hpp"

namespace kolo::internal::fusion {

/// Consecutive elements of one tensor, and where to put their results.
struct Part {
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  std::int64_t elements = 0;
};

/// The type in which elements of `dtype` travel: `dtype`, or a half type if f32 and f64 are
/// compressed.
[[nodiscard]] DType wire_type(DType dtype, Compression compression);

/// Copies elements from one place to another. The types are the same, or one is f32 or f64 and the
/// other f16 or bf16; a narrowing conversion rounds to nearest. Memory may lie at any address. The
/// places must not overlap, unless both the places and the types are the same.
void convert(const std::byte* from, DType from_type, std::int64_t elements, std::byte* to,
             DType to_type);

/// Writes the inputs of the parts to `buffer`, one after the other, as `wire`.
void pack(std::span<const Part> parts, DType dtype, DType wire, std::byte* buffer);

/// The reverse of `pack`: writes the elements of `buffer`, which are of type `wire`, to the
/// outputs.
void unpack(const std::byte* buffer, DType wire, DType dtype, std::span<const Part> parts);

}  // namespace kolo::internal::fusion
