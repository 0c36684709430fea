// Copies the tensors of a batch into one buffer and back, scaling and converting on the way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kolo/tensor.hpp"

namespace kolo::fusion {

/// The type in which a reduction of `dtype` travels and is summed: f32 for the half types.
[[nodiscard]] DType wire_type(DType dtype);

/// Writes `elements` of `dtype` at `tensor`, each times `scale`, to `buffer` as `wire_type(dtype)`.
/// Integers are scaled in double and truncated toward zero, to the nearest value their type has; a
/// scale of 1 changes no bit.
void pack(const void* tensor, std::int64_t elements, DType dtype, double scale, std::byte* buffer);

/// The way back: element = buffer / divisor * scale. Without a scale f32 and f64 are the quotient
/// itself; with one they are multiplied by scale / divisor, rounded to their type. The half types
/// are computed in f32 and then rounded. Integers are divided in 64 bits and truncated, then scaled
/// in double and truncated as by `pack`.
void unpack(const std::byte* buffer, std::int64_t elements, DType dtype, std::int64_t divisor,
            double scale, void* tensor);

}  // namespace kolo::fusion
