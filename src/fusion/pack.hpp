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

/// The type in which elements of `dtype` travel in a reduction: `dtype`; a half type if f32 and f64
/// are compressed; or i64 for averages of shorter integers, whose sums would overflow.
[[nodiscard]] DType wire_type(DType dtype, ReduceOp op, Compression compression);

/// Copies elements from one place to another. The types are the same, or one is f32 or f64 and the
/// other f16 or bf16, or one is i64 and the other a shorter integer. A narrowing conversion yields
/// the nearest number. Memory may lie at any address. The places must not overlap, unless both the
/// places and the types are the same.
void convert(const std::byte* from, DType from_type, std::int64_t elements, std::byte* to,
             DType to_type);

/// Writes the inputs of the parts to `buffer`, one after the other, as `wire`.
void pack(std::span<const Part> parts, DType dtype, DType wire, std::byte* buffer);

/// The reverse of `pack`: writes the elements of `buffer`, which are of type `wire`, to the
/// outputs.
void unpack(const std::byte* buffer, DType wire, DType dtype, std::span<const Part> parts);

}  // namespace kolo::internal::fusion
