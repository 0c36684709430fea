// The types that describe tensors and reductions. Everything in Kolo may include this header; it
// includes no other of Kolo's.
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

enum class DeviceType : std::uint8_t { cpu, cuda };

/// Where memory lies. `index` is the GPU's number in this process, 0 for the CPU.
struct Device {
  DeviceType type = DeviceType::cpu;
  int index = 0;

  friend bool operator==(const Device&, const Device&) = default;
};

/// The lengths of a tensor's dimensions, outermost first. No dimension means a scalar: one element.
class Shape {
 public:
  Shape() = default;

  /// From integers of any type: `Shape{rows, 3}`. A negative length is refused when used.
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
  /// Lives as long as the shape.
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
  std::array<std::int64_t, 4> few_{};  // unless there are more: most shapes need no allocation
  std::vector<std::int64_t> many_{};
};

/// How elements are combined, always in the order of the ranks.
///
/// - `average`, `sum`: an average is the sum divided by the number of ranks; of integers it is
///   divided in 64 bits (u64: in double) and truncated toward zero. Integer sums and products wrap
///   as their type does.
/// - `min`, `max`, `product`. A NaN in any rank's element gives NaN.
/// - `adasum`: sums what is orthogonal and averages what is parallel (Maleki et al., 2020,
///   https://arxiv.org/abs/2006.02924), tensor by tensor; for floating-point types.
///
/// Booleans have `min` (and), `max` (or) and `product` (and) only. f16 and bf16 are computed in f32
/// and rounded once.
enum class ReduceOp : std::uint8_t { average, sum, min, max, product, adasum };

/// What travels in place of f32 and f64: `none` the tensor's own type, else a two-byte type. Sums
/// are still computed in f32. Other types travel as they are.
enum class Compression : std::uint8_t { none, fp16, bf16 };

/// By how many ranks an average divides while some have joined (see `join`): by all of the set, or
/// by those that take part.
enum class AverageOver : std::uint8_t { all, present };

/// Gives the memory for a result whose size only the ranks together know: called once, by any
/// thread, with the number of rows from each member of the set. Must not call Kolo.
using Allocator = std::function<void*(std::span<const std::int64_t> rows)>;

/// How many rows the member of rank `index` in a set of `size` gets of `rows` in a reducescatter:
/// where they cannot be shared evenly, the first members get one more.
[[nodiscard]] constexpr std::int64_t reducescatter_rows(std::int64_t rows, int index, int size) {
  return rows / size + (index < rows % size ? 1 : 0);
}

}  // namespace kolo
