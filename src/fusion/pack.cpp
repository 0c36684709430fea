#include "fusion/pack.hpp"

#include <cstring>

#include "base/dtype.hpp"
#include "base/elements.hpp"

namespace kolo::fusion {
namespace {

std::int64_t bytes_of(std::int64_t elements, DType dtype) {
  return elements * static_cast<std::int64_t>(size_of(dtype));
}

}  // namespace

DType wire_type(DType dtype, Compression compression) {
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
  visit_real(from_type, [&](auto from_element) {
    visit_real(to_type, [&](auto to_element) {
      using From = decltype(from_element);
      using To = decltype(to_element);
      if constexpr (is_half_type<From> != is_half_type<To>)
        for (std::int64_t i = 0; i < elements; ++i)
          store<To>(to, i, rounded<To>(computed(load<From>(from, i))));
    });
  });
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

}  // namespace kolo::fusion
