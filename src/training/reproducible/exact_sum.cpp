// SPDX-License-Identifier: Apache-2.0
#include "training/reproducible/exact_sum.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <limits>
#include <utility>

#include "base/elements.hpp"

namespace kolo::internal {
namespace {

// An element x is high * 2^-20 + low * 2^-72, with integers of at most 51 bits, so that the sums of
// 1024 of them fit into 64 bits.
constexpr double limit = 0x1p30;
constexpr double high_factor = 0x1p20;
constexpr double low_factor = 0x1p52;
constexpr std::uint64_t sign = std::uint64_t{1} << 63U;

// The sum with this number has the integer nearest to a double in its last bits, for magnitudes up
// to 2^51. Compilers vectorize it, unlike a conversion.
constexpr double shift = 0x1.8p52;

std::int64_t integer_of(double shifted) {
  return std::bit_cast<std::int64_t>(shifted) - std::bit_cast<std::int64_t>(shift);
}

/// Elements that are converted at a time, so that both loops are vectorized.
constexpr std::int64_t block = 512;

/// Adds elements, or writes them if they are the first. Returns whether one cannot be added.
template <bool first>
bool add_doubles(const double* from, std::int64_t elements, std::int64_t* high, std::int64_t* low) {
  std::uint64_t invalid = 0;
  for (std::int64_t i = 0; i < elements; ++i) {
    // Comparisons of bits, which are in the order of the magnitudes, with NaN above infinity:
    // compilers do not vectorize comparisons of doubles, which may trap.
    const auto bits = std::bit_cast<std::uint64_t>(from[i]);
    const std::uint64_t fits = ((bits & ~sign) - std::bit_cast<std::uint64_t>(limit)) >> 63U;
    invalid |= fits ^ 1U;
    const double scaled = std::bit_cast<double>(bits & (std::uint64_t{0} - fits)) * high_factor;
    const double shifted = scaled + shift;
    const std::int64_t new_high = integer_of(shifted);
    const std::int64_t new_low = integer_of((scaled - (shifted - shift)) * low_factor + shift);
    high[i] = first ? new_high : high[i] + new_high;
    low[i] = first ? new_low : low[i] + new_low;
  }
  return invalid != 0;
}

template <typename T, bool first>
bool add_elements(const std::byte* from, std::int64_t elements, std::int64_t* high,
                  std::int64_t* low) {
  std::array<double, block> doubles;
  bool invalid = false;
  for (std::int64_t begin = 0; begin < elements; begin += block) {
    const std::int64_t count = std::min(block, elements - begin);
    for (std::int64_t i = 0; i < count; ++i)
      doubles[static_cast<std::size_t>(i)] =
          static_cast<double>(computed(load<T>(from, begin + i)));
    invalid |= add_doubles<first>(doubles.data(), count, high + begin, low + begin);
  }
  return invalid;
}

}  // namespace

ExactSum::ExactSum(std::int64_t elements)
    : elements_(elements), words_(2 * static_cast<std::size_t>(elements) + 2) {}

void ExactSum::clear() {
  is_clear_ = true;
  words_[used()] = words_[invalid()] = 0;
}

TensorView ExactSum::words() {
  if (std::exchange(is_clear_, false)) std::fill_n(words_.begin(), used(), 0);
  return {words_};
}

void ExactSum::add(const ConstTensorView& tensor) {
  const auto* const from = static_cast<const std::byte*>(tensor.data());
  std::int64_t* const high = words_.data();
  const bool first = std::exchange(is_clear_, false);
  bool invalid = false;
  visit_real(tensor.dtype(), [&](auto type) {
    using T = decltype(type);
    invalid = first ? add_elements<T, true>(from, elements_, high, high + elements_)
                    : add_elements<T, false>(from, elements_, high, high + elements_);
  });
  ++words_[used()];
  if (invalid) ++words_[this->invalid()];
}

void ExactSum::write_mean(const TensorView& tensor, int count) const {
  auto* const to = static_cast<std::byte*>(tensor.data());
  const bool valid = words_[invalid()] == 0;
  const std::int64_t* const high = words_.data();
  const std::int64_t* const low = high + elements_;
  visit_real(tensor.dtype(), [&](auto type) {
    using T = decltype(type);
    for (std::int64_t i = 0; i < elements_; ++i) {
      const double sum = static_cast<double>(high[i]) / high_factor +
                         static_cast<double>(low[i]) / (high_factor * low_factor);
      store(to, i, rounded<T>(valid ? sum / count : std::numeric_limits<double>::quiet_NaN()));
    }
  });
}

}  // namespace kolo::internal
