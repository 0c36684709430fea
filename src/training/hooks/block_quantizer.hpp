// SPDX-License-Identifier: Apache-2.0
// The quantization of f32 to 8-bit integers, with a scale for each block.
#pragma once

#include <cstddef>
#include <cstdint>

namespace kolo::internal {

/// Rounds f32 to `scale * integer`, with integers from -127 to 127. The scale of a block is its
/// largest magnitude divided by 127. A block is stored as a record: the scale, then `block`
/// integers; zeros fill up the record of the last block. A block that contains an infinity or NaN
/// gets the scale NaN and zeros. A block whose magnitudes are all below 1e-35 gets the scale 0,
/// because the reciprocal of its scale would overflow.
///
/// Rounding is to nearest, ties to even. Memory must not overlap.
class BlockQuantizer {
 public:
  /// `block` is a multiple of 16.
  explicit BlockQuantizer(std::int64_t block) : block_(block) {}

  [[nodiscard]] std::int64_t blocks(std::int64_t elements) const {
    return (elements + block_ - 1) / block_;
  }
  [[nodiscard]] std::int64_t record_bytes() const {
    return block_ + static_cast<std::int64_t>(sizeof(float));
  }

  void quantize(const float* from, std::int64_t elements, std::byte* records) const;

  /// Adds the values of the records to `sum`.
  void add(const std::byte* records, std::int64_t elements, float* sum) const;

  /// Writes `from` minus the values of the records to `error`. Skips blocks whose scale in
  /// `results` is NaN, so that a gradient that overflowed does not stay in the error.
  void keep_error(const float* from, const std::byte* records, const std::byte* results,
                  std::int64_t elements, float* error) const;

  /// Writes `factor` times the values of the records.
  void dequantize(const std::byte* records, std::int64_t elements, float factor, float* to) const;

 private:
  std::int64_t block_;
};

}  // namespace kolo::internal
