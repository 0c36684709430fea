// SPDX-License-Identifier: Apache-2.0
// A custom optimizer with f32 gradients, for tests of communication hooks.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "../session/fixture.hpp"
#include "kolo/communication_hook.hpp"
#include "kolo/optimizer.hpp"

namespace kolo::internal {

using Values = std::vector<float>;

struct HookModel {
  std::vector<std::string> names;
  std::vector<Shape> shapes;
  std::vector<Values> all;
  int steps = 0;

  explicit HookModel(const std::vector<std::pair<std::string, Shape>>& layers) {
    for (const auto& [name, shape] : layers) {
      names.push_back(name);
      shapes.push_back(shape);
      all.emplace_back(static_cast<std::size_t>(shape.elements()));
    }
  }
  std::vector<NamedTensor> gradients() {
    std::vector<NamedTensor> tensors;
    for (std::size_t i = 0; i < all.size(); ++i)
      tensors.push_back({names[i], TensorView(all[i].data(), shapes[i])});
    return tensors;
  }
  void step() { ++steps; }
};

class WithHookModel : public WithSession {
 protected:
  using Optimizer = DistributedOptimizer<HookModel>;

  explicit WithHookModel(const std::vector<std::pair<std::string, Shape>>& layers)
      : model_(layers) {}

  /// Fills the gradients with this rank's normally distributed numbers. Returns the ranks' mean.
  std::vector<Values> fill_randomly(unsigned seed) {
    std::vector<Values> mean = model_.all;
    for (Values& values : mean) std::fill(values.begin(), values.end(), 0.0F);
    for (int rank = 0; rank < n_; ++rank) {
      std::mt19937 random(1000 * seed + static_cast<unsigned>(rank));
      std::normal_distribution<float> normal;
      for (std::size_t k = 0; k < mean.size(); ++k)
        for (std::size_t i = 0; i < mean[k].size(); ++i) {
          const float value = normal(random);
          mean[k][i] += value / static_cast<float>(n_);
          if (rank == me_) model_.all[k][i] = value;
        }
    }
    return mean;
  }

  /// Fails unless all ranks have the same gradients, bit for bit.
  void expect_same_bits() const {
    std::vector<std::uint32_t> bits;
    for (const Values& values : model_.all)
      for (const float value : values) {
        std::uint32_t element = 0;
        std::memcpy(&element, &value, sizeof element);
        bits.push_back(element);
      }
    std::vector<std::uint32_t> least = bits;
    allreduce(least, {.name = "least bits", .op = ReduceOp::min});
    EXPECT_EQ(least, bits);
  }

  /// Fails if an element differs by more than `tolerance` from the expected one.
  void expect_near(const std::vector<Values>& expected, double tolerance) const {
    EXPECT_LE(largest_difference(expected, model_.all), tolerance);
  }
  [[nodiscard]] static double largest_difference(const std::vector<Values>& a,
                                                 const std::vector<Values>& b) {
    double largest = 0.0;
    for (std::size_t k = 0; k < a.size(); ++k)
      for (std::size_t i = 0; i < a[k].size(); ++i) {
        const double difference = std::abs(double{a[k][i]} - b[k][i]);
        largest = std::isnan(difference) ? difference : std::max(largest, difference);
        if (std::isnan(difference)) return difference;
      }
    return largest;
  }

  HookModel model_;
};

}  // namespace kolo::internal
