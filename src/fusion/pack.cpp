// SPDX-License-Identifier: Apache-2.0
#include "fusion/pack.hpp"

#include <cstring>

#include "base/dtype.hpp"
#include "base/elements.hpp"

namespace kolo::internal::fusion {
namespace {

std::int64_t bytes_of(std::int64_t elements, DType dtype) {
  return elements * signed_size_of(dtype);
}

}  // namespace

DType wire_type(DType dtype, ReduceOp op, Compression compression) {
  if (op == ReduceOp::average && is_short_integer(dtype)) return DType::i64;
  const bool compressible = dtype == DType::f32 || dtype == DType::f64;
  if (!compressible || compression == Compression::none) return dtype;
  return compression == Compression::fp16 ? DType::f16 : DType::bf16;
}

void convert(const std::byte* from, DType from_type, std::int64_t elements, std::byte* to,
             DType to_type) {
  if (from_type == to_type) {
    if (elements > 0 && from != to)
      std::memcpy(to, from, static_cast<std::size_t>(bytes_of(elements, from_type)));
    return;
  }
  if (from_type == DType::i64) {
    visit_integer(to_type, [&](auto type) {
      using To = decltype(type);
      for (std::int64_t i = 0; i < elements; ++i)
        store(to, i, nearest<To>(load<std::int64_t>(from, i)));
    });
  } else if (to_type == DType::i64) {
    visit_integer(from_type, [&](auto type) {
      using From = decltype(type);
      for (std::int64_t i = 0; i < elements; ++i)
        store(to, i, static_cast<std::int64_t>(load<From>(from, i)));
    });
  } else {
    convert_reals(from, from_type, elements, to, to_type);
  }
}

void pack(std::span<const Part> parts, DType dtype, DType wire, std::byte* buffer) {
  for (const Part& part : parts) {
    convert(part.input, dtype, part.elements, buffer, wire);
    buffer += bytes_of(part.elements, wire);
  }
}

void unpack(const std::byte* buffer, DType wire, DType dtype, std::span<const Part> parts) {
  for (const Part& part : parts) {
    convert(buffer, wire, part.elements, part.output, dtype);
    buffer += bytes_of(part.elements, wire);
  }
}

}  // namespace kolo::internal::fusion
