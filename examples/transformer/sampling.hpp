// SPDX-License-Identifier: Apache-2.0
// Samples a byte from scores.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

#include "random.hpp"

namespace gpt {

/// Draws a byte with the softmax of the scores as probabilities. A `temperature` below 1 favors
/// likely bytes.
inline char draw_byte(std::span<const float> scores, Random& random, double temperature = 0.7) {
  const double largest = static_cast<double>(*std::ranges::max_element(scores));
  std::vector<double> up_to(scores.size());
  double sum = 0.0;
  for (std::size_t i = 0; i < scores.size(); ++i)
    up_to[i] = sum += std::exp((static_cast<double>(scores[i]) - largest) / temperature);
  const auto drawn = std::ranges::upper_bound(up_to, random.fraction() * sum);
  return static_cast<char>(std::min(drawn - up_to.begin(), std::ssize(up_to) - 1));
}

}  // namespace gpt
