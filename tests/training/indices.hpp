// SPDX-License-Identifier: Apache-2.0
// Expected indices for the tests of samplers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

namespace kolo::internal::test {

using Indices = std::vector<std::int64_t>;

inline Indices from_zero_to(std::int64_t end) {
  Indices numbers(static_cast<std::size_t>(end));
  std::iota(numbers.begin(), numbers.end(), std::int64_t{0});
  return numbers;
}

}  // namespace kolo::internal::test
