// SPDX-License-Identifier: Apache-2.0
#include "training/reproducible/exact_sum.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <limits>

#include "base/elements.hpp"

namespace kolo::internal {
namespace {

// An element x is high * 2^-20 + low * 2^-72, with integers of at most 51 bits, so that the sums of
// 1024 of them fit into 64 bits.
constexpr double limit = 0x1p30;
constexpr double high_factor = 0x1p20;
constexpr double low_factor = 0x1p52;

// The sum with this number has the integer nearest to a double in its last bits, for magnitudes up
// to 2^51. Compilers vectorize it, unlike a conversion.
constexpr double shift = 0x1.8p52;

std::int64_t integer_of(double shifted) {
  return std::bit_cast<std::int64_t>(shifted) - std::bit_cast<std::int64_t>(shift);
}

// Returns whether an element cannot be added.
template <typename T>
bool add_elements(const std::byte* from, std::int64_t elements, std::int64_t* high,
                  std::int64_t* low) {
  bool invalid = false;
  for (std::int64_t i = 0; i < elements; ++i) {
    const auto given = static_cast<double>(computed(load<T>(from, i)));
    const bool fits = std::abs(given) < limit;  // false for NaN
    invalid |= !fits;
    const double scaled = fits ? given * high_factor : 0.0;
    const double shifted = scaled + shift;
    high[i] += integer_of(shifted);
    low[i] += integer_of((scaled - (shifted - shift)) * low_factor + shift);
  }
  return invalid;
}

}  // namespace

ExactSum::ExactSum(std::int64_t elements)
    : elements_(elements), words_(2 * static_cast<std::size_t>(elements) + 2) {}

void ExactSum::clear() { std::ranges::fill(words_, 0); }

void ExactSum::add(const ConstTensorView& tensor) {
  const auto* const from = static_cast<const std::byte*>(tensor.data());
  bool invalid = false;
  visit_real(tensor.dtype(), [&](auto type) {
    invalid =
        add_elements<decltype(type)>(from, elements_, words_.data(), words_.data() + elements_);
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
