// SPDX-License-Identifier: Apache-2.0
// Names, sizes and encodings of dtypes, and names of reduction operators.
#pragma once

#include <cstddef>
#include <cstdint>
#include <kolo/collectives.hpp>
#include <kolo/tensor.hpp>

#include "names.hpp"

namespace perf {

inline constexpr Names<kolo::DType, 13> dtype_names{{
    {kolo::DType::f32, "f32"},
    {kolo::DType::f64, "f64"},
    {kolo::DType::f16, "f16"},
    {kolo::DType::bf16, "bf16"},
    {kolo::DType::u8, "u8"},
    {kolo::DType::i8, "i8"},
    {kolo::DType::u16, "u16"},
    {kolo::DType::i16, "i16"},
    {kolo::DType::u32, "u32"},
    {kolo::DType::i32, "i32"},
    {kolo::DType::u64, "u64"},
    {kolo::DType::i64, "i64"},
    {kolo::DType::boolean, "bool"},
}};

/// Operators with an exact result; adasum has none.
inline constexpr Names<kolo::ReduceOp, 5> reduce_op_names{{
    {kolo::ReduceOp::sum, "sum"},
    {kolo::ReduceOp::average, "average"},
    {kolo::ReduceOp::min, "min"},
    {kolo::ReduceOp::max, "max"},
    {kolo::ReduceOp::product, "product"},
}};

/// Bytes of an element.
[[nodiscard]] std::int64_t size_of(kolo::DType dtype);

/// The largest n such that the dtype represents every integer from 0 to n; at most 2^24.
[[nodiscard]] std::int64_t exact_limit(kolo::DType dtype);

/// Writes an integer from 0 to `exact_limit(dtype)` as an element.
void encode(kolo::DType dtype, std::int64_t value, std::byte* element);

}  // namespace perf
