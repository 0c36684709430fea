// SPDX-License-Identifier: Apache-2.0
// The types that describe tensors and reductions. Includes no other header of Kolo.
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace kolo {

/// Element types. `f16` is IEEE binary16, `bf16` the upper half of an f32; both are two bytes.
enum class DType : std::uint8_t {
  u8,
  i8,
  u16,
  i16,
  u32,
  i32,
  u64,
  i64,
  f16,
  bf16,
  f32,
  f64,
  boolean,
};

/// The kinds of device that can hold a tensor.
enum class DeviceType : std::uint8_t { cpu, cuda };

/// The device of a tensor. `index` is CUDA's index of the GPU in this process; 0 for the CPU.
struct Device {
  DeviceType type = DeviceType::cpu;
  int index = 0;

  friend bool operator==(const Device&, const Device&) = default;
};

/// The lengths of a tensor's dimensions, outermost first. A scalar has no dimensions and one
/// element.
class Shape {
 public:
  Shape() = default;

  /// Takes integers of any type: `Shape{rows, 3}`. Operations throw InvalidArgument for a negative
  /// length.
  template <std::integral... Integers>
    requires(sizeof...(Integers) > 0)
  Shape(Integers... lengths)  // NOLINT(google-explicit-constructor)
      : Shape(std::span<const std::int64_t>(
            std::array<std::int64_t, sizeof...(Integers)>{static_cast<std::int64_t>(lengths)...})) {
  }

  explicit Shape(std::span<const std::int64_t> lengths) : dimensions_(lengths.size()) {
    if (dimensions_ > few_.size()) many_.assign(lengths.begin(), lengths.end());
    if (dimensions_ <= few_.size()) std::ranges::copy(lengths, few_.begin());
  }
  explicit Shape(const std::vector<std::int64_t>& lengths)
      : Shape(std::span<const std::int64_t>(lengths)) {}

  [[nodiscard]] std::size_t dimensions() const noexcept { return dimensions_; }
  [[nodiscard]] std::int64_t operator[](std::size_t dimension) const {
    return lengths()[dimension];
  }
  /// The span is valid as long as the shape.
  [[nodiscard]] std::span<const std::int64_t> lengths() const noexcept {
    return {dimensions_ <= few_.size() ? few_.data() : many_.data(), dimensions_};
  }

  /// The product of the lengths: 1 for a scalar, 0 if any length is 0.
  [[nodiscard]] std::int64_t elements() const noexcept {
    std::int64_t product = 1;
    for (const std::int64_t length : lengths()) product *= length;
    return product;
  }

  friend bool operator==(const Shape& a, const Shape& b) noexcept {
    return std::ranges::equal(a.lengths(), b.lengths());
  }

 private:
  std::size_t dimensions_ = 0;
  std::array<std::int64_t, 4> few_{};  // up to 4 lengths, without an allocation
  std::vector<std::int64_t> many_{};
};

/// The operator that combines the elements of all ranks. The ranks of a host are combined in
/// ascending order, then the hosts in an order that depends only on their number. If all ranks are
/// on one host, and more than 8 of them are bound to several NUMA nodes, the ranks of each node are
/// combined first, then the nodes. Every rank gets the same bits.
///
/// - `sum` and `product` of integers wrap around.
/// - `average` is the sum divided by the number of ranks. Integers of up to 32 bits are sent and
///   summed as i64, so that no sum overflows; on GPUs, they travel through the host. The sum of
///   64-bit integers wraps around: average u64 and i64 only if the sum is in range, or as f64.
///   Averages of integers are truncated toward zero.
/// - `min` and `max` give NaN if any rank's element is NaN.
/// - `adasum` adds orthogonal gradients and averages parallel ones, tensor by tensor (Maleki et
///   al., 2020, https://arxiv.org/abs/2006.02924). Floating-point types only.
///
/// Booleans support `min` (and), `max` (or) and `product` (and). f16 and bf16 are computed in f32
/// and rounded once.
enum class ReduceOp : std::uint8_t { average, sum, min, max, product, adasum };

/// The type in which f32 and f64 tensors are transferred: their own type (`none`) or a two-byte
/// one. Compressed tensors are still summed in f32. Tensors of other types are never compressed.
enum class Compression : std::uint8_t { none, fp16, bf16 };

/// The divisor of an average once ranks have joined (see `join`): the number of all members of the
/// set, or only of those that have not joined.
enum class AverageOver : std::uint8_t { all, present };

/// Returns memory for a result whose size depends on all ranks. Called once, on any thread, with
/// the number of rows from each member of the set. An allocator must not call Kolo: such calls
/// throw InvalidArgument. If it throws, or returns null for a non-empty result, the session ends.
using Allocator = std::function<void*(std::span<const std::int64_t> rows)>;

/// The number of rows that member `index` of a set of `size` members gets in a reducescatter of
/// `rows` rows. If `rows` is not a multiple of `size`, the first members get one more row than the
/// others.
[[nodiscard]] constexpr std::int64_t reducescatter_rows(std::int64_t rows, int index, int size) {
  return rows / size + (index < rows % size ? 1 : 0);
}

}  // namespace kolo
