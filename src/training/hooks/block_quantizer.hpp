// SPDX-License-Identifier: Apache-2.0
// Blocks of f32 as 8-bit integers with a scale.
#pragma once

#include <cstddef>
#include <cstdint>

namespace kolo::internal {

/// Rounds blocks of f32 to `scale * integer`, with integers of -127 to 127 and one scale per block:
/// its largest magnitude divided by 127. A block takes a record: its scale, and `block` integers.
/// The last block is filled up with zeros. A block that has an infinity or NaN gets the scale NaN,
/// and zeros; one whose elements are all below 1e-35 gets the scale 0, as its reciprocal would
/// overflow.
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

  /// Subtracts the values of the records from `from`, and writes what is left to `error`, except
  /// blocks whose scale in `results` is NaN.
  void keep_error(const float* from, const std::byte* records, const std::byte* results,
                  std::int64_t elements, float* error) const;

  /// Writes `factor` times the values.
  void dequantize(const std::byte* records, std::int64_t elements, float factor, float* to) const;

 private:
  std::int64_t block_;
};

}  // namespace kolo::internal
