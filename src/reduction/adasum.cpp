// SPDX-License-Identifier: Apache-2.0
#include "reduction/adasum.hpp"

#include <array>

#include "base/elements.hpp"

namespace kolo::internal::reduction {
namespace {

// Each lane sums every eighth element, so that the compiler can add eight elements at once without
// reordering sums, which would change their bits.
constexpr std::int64_t lanes = 8;
using Lanes = std::array<double, lanes>;

double total(const Lanes& sums) {
  double result = 0.0;
  for (const double sum : sums) result += sum;
  return result;
}

template <typename T>
void add_dots_of(const std::byte* a, const std::byte* b, std::int64_t elements, Dots& dots) {
  Lanes ab{};
  Lanes aa{};
  Lanes bb{};
  const auto add = [&](std::int64_t i, std::size_t lane) {
    const auto x = static_cast<double>(computed(load<T>(a, i)));
    const auto y = static_cast<double>(computed(load<T>(b, i)));
    ab[lane] += x * y;
    aa[lane] += x * x;
    bb[lane] += y * y;
  };
  std::int64_t i = 0;
  for (; i + lanes <= elements; i += lanes)
    for (std::int64_t lane = 0; lane < lanes; ++lane) add(i + lane, static_cast<std::size_t>(lane));
  for (; i < elements; ++i) add(i, 0);
  dots.ab += total(ab);
  dots.aa += total(aa);
  dots.bb += total(bb);
}

}  // namespace

void add_dots(DType dtype, const std::byte* a, const std::byte* b, std::int64_t elements,
              Dots& dots) {
  visit_real(dtype, [&](auto type) { add_dots_of<decltype(type)>(a, b, elements, dots); });
}

Shares adasum_shares(const Dots& dots) {
  const auto share = [&](double squared_norm) {
    return squared_norm == 0.0 ? 1.0 : 1.0 - dots.ab / (2.0 * squared_norm);
  };
  return {share(dots.aa), share(dots.bb)};
}

void add_shares(DType dtype, const std::byte* a, const std::byte* b, const Shares& shares,
                std::int64_t elements, std::byte* output) {
  visit_real(dtype, [&](auto type) {
    using T = decltype(type);
    for (std::int64_t i = 0; i < elements; ++i) {
      const auto x = static_cast<double>(computed(load<T>(a, i)));
      const auto y = static_cast<double>(computed(load<T>(b, i)));
      store<T>(output, i, rounded<T>(shares.of_a * x + shares.of_b * y));
    }
  });
}

}  // namespace kolo::internal::reduction
