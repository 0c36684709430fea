// SPDX-License-Identifier: Apache-2.0
// The loops over elements are written so that the compiler vectorizes them: they have no branches,
// and no floating-point reductions, whose order a compiler must not change.
#include "training/hooks/block_quantizer.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace kolo::internal {
namespace {

constexpr float max_integer = 127.0F;
constexpr float smallest = 1e-35F;

float scale_of(const std::byte* record) {
  float scale = 0.0F;
  std::memcpy(&scale, record, sizeof scale);
  return scale;
}

const std::int8_t* integers_of(const std::byte* record) {
  return reinterpret_cast<const std::int8_t*>(record + sizeof(float));
}

// Compares magnitudes as integers: with the sign bit cleared, the bits of f32 sort like the values,
// with infinity and NaN last. A maximum of floats would lose NaN.
float largest_magnitude(const float* from, std::int64_t count) {
  std::int32_t largest = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto magnitude =
        static_cast<std::int32_t>(std::bit_cast<std::uint32_t>(from[i]) & 0x7fffffffU);
    largest = std::max(largest, magnitude);
  }
  return std::bit_cast<float>(largest);
}

// The sum of a small number and 1.5 * 2^23 has no bits for a fraction. So the addition rounds to
// nearest, ties to even, and the lowest bits of the sum are the integer.
void round_to_integers(const float* from, std::int64_t count, float reciprocal, std::int8_t* to) {
  constexpr float shift = 12582912.0F;
  for (std::int64_t i = 0; i < count; ++i)
    to[i] = static_cast<std::int8_t>(std::bit_cast<std::int32_t>(from[i] * reciprocal + shift) -
                                     std::bit_cast<std::int32_t>(shift));
}

void quantize_block(const float* from, std::int64_t count, std::int64_t block, std::byte* record) {
  const float largest = largest_magnitude(from, count);
  auto* const integers = reinterpret_cast<std::int8_t*>(record + sizeof(float));
  float scale = 0.0F;
  if (!std::isfinite(largest)) {
    scale = std::numeric_limits<float>::quiet_NaN();
  } else if (largest >= smallest) {
    scale = largest / max_integer;
  }
  std::memcpy(record, &scale, sizeof scale);
  // A block whose scale is NaN or 0 is stored as zeros.
  const std::int64_t used = scale > 0.0F ? count : 0;
  round_to_integers(from, used, max_integer / largest, integers);
  std::memset(integers + used, 0, static_cast<std::size_t>(block - used));
}

}  // namespace

void BlockQuantizer::quantize(const float* from, std::int64_t elements, std::byte* records) const {
  for (std::int64_t i = 0; i < elements; i += block_, records += record_bytes())
    quantize_block(from + i, std::min(block_, elements - i), block_, records);
}

void BlockQuantizer::add(const std::byte* records, std::int64_t elements, float* sum) const {
  for (std::int64_t i = 0; i < elements; i += block_, records += record_bytes()) {
    const std::int64_t count = std::min(block_, elements - i);
    const float scale = scale_of(records);
    const std::int8_t* const integers = integers_of(records);
    for (std::int64_t k = 0; k < count; ++k) sum[i + k] += static_cast<float>(integers[k]) * scale;
  }
}

void BlockQuantizer::keep_error(const float* from, const std::byte* records,
                                const std::byte* results, std::int64_t elements,
                                float* error) const {
  for (std::int64_t i = 0; i < elements; i += block_) {
    const std::int64_t count = std::min(block_, elements - i);
    const float scale = scale_of(records);
    const std::int8_t* const integers = integers_of(records);
    if (!std::isnan(scale_of(results)))
      for (std::int64_t k = 0; k < count; ++k)
        error[i + k] = from[i + k] - static_cast<float>(integers[k]) * scale;
    records += record_bytes();
    results += record_bytes();
  }
}

void BlockQuantizer::dequantize(const std::byte* records, std::int64_t elements, float factor,
                                float* to) const {
  for (std::int64_t i = 0; i < elements; i += block_, records += record_bytes()) {
    const std::int64_t count = std::min(block_, elements - i);
    const float scale = scale_of(records) * factor;
    const std::int8_t* const integers = integers_of(records);
    for (std::int64_t k = 0; k < count; ++k) to[i + k] = static_cast<float>(integers[k]) * scale;
  }
}

}  // namespace kolo::internal
