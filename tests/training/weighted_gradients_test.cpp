// SPDX-License-Identifier: Apache-2.0
// Training with unequal shares equals training in one process.
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kolo/kolo.hpp"

namespace {

using Numbers = std::vector<std::int64_t>;

// A linear regression of 3 weights. Example i has the features 1, sin(i) and cos(i / 3).
struct Line {
  std::vector<double> weights = std::vector<double>(3, 0.5);
  std::vector<double> gradient = std::vector<double>(3, 0.0);

  std::vector<kolo::NamedTensor> gradients() { return {{"weights", gradient}}; }
  void step() {
    for (std::size_t i = 0; i < weights.size(); ++i) weights[i] -= 0.1 * gradient[i];
  }

  // Sets the gradient to that of the mean loss of these examples, times `weight`.
  void backward(const Numbers& examples, double weight) {
    gradient.assign(weights.size(), 0.0);
    for (const std::int64_t example : examples) {
      const auto i = static_cast<double>(example);
      const std::vector<double> x = {1.0, std::sin(i), std::cos(i / 3.0)};
      double error = 2.0 - 3.0 * x[1] + x[2] * x[1];
      for (std::size_t k = 0; k < x.size(); ++k) error -= weights[k] * x[k];
      for (std::size_t k = 0; k < x.size(); ++k)
        gradient[k] -= weight * 2.0 * error * x[k] / static_cast<double>(examples.size());
    }
  }
};

// The first examples of the rest of an epoch.
Numbers first_of(const Numbers& rest, std::int64_t count) {
  return {rest.begin(), rest.begin() + count};
}

// 157 = 4 * 37 + 9: the last step of an epoch is smaller.
constexpr std::int64_t examples = 157, global_batch = 37;

TEST(WeightedGradients, EqualThoseOfOneProcess) {
  const kolo::Session session;
  Line alone, line;
  kolo::DistributedOptimizer optimizer(line);
  kolo::DistributedSampler all({.examples = examples, .rank = 0, .ranks = 1, .seed = 5});
  kolo::DistributedSampler sampler({.examples = examples, .seed = 5});
  kolo::BatchShares shares({.global_batch = global_batch});
  for (std::int64_t epoch = 0; epoch < 4; ++epoch) {
    while (sampler.steps_left(shares.all()) > 0) {
      const Numbers whole = all.indices();
      const std::int64_t size = std::min<std::int64_t>(global_batch, std::ssize(whole));
      alone.backward(first_of(whole, size), 1.0);
      alone.step();
      all.advance(size);

      const std::int64_t own =
          sampler.next_sizes(shares.all())[static_cast<std::size_t>(kolo::rank())];
      line.backward(first_of(sampler.indices(shares.all()), own), sampler.weight(shares.all()));
      optimizer.step();
      sampler.advance(shares.all());
      for (std::size_t i = 0; i < line.weights.size(); ++i)
        ASSERT_NEAR(line.weights[i], alone.weights[i], 1e-13) << "epoch " << epoch;
    }
    // The last rank is slow, so that its share falls with each epoch.
    shares.add(1, kolo::rank() == kolo::size() - 1 ? 50.0 : 1.0);
    EXPECT_EQ(shares.agree(), kolo::size() > 1);
    all.begin_epoch(epoch + 1);
    sampler.begin_epoch(epoch + 1);
  }
}

TEST(WeightedGradients, ARankWithoutExamplesContributesNothing) {
  const kolo::Session session;
  if (kolo::size() == 1) return;
  // One example is left for the first rank.
  Numbers shares(static_cast<std::size_t>(kolo::size()), 2);
  kolo::DistributedSampler sampler(
      {.examples = std::int64_t{2} * kolo::size() + 1, .shuffle = false});
  sampler.advance(shares);
  Line line, alone;
  kolo::DistributedOptimizer optimizer(line);
  EXPECT_EQ(sampler.weight(shares), kolo::rank() == 0 ? kolo::size() : 0.0);
  line.backward(sampler.indices(shares), sampler.weight(shares));
  optimizer.step();
  alone.backward({std::int64_t{2} * kolo::size()}, 1.0);
  alone.step();
  for (std::size_t i = 0; i < line.weights.size(); ++i)
    EXPECT_NEAR(line.weights[i], alone.weights[i], 1e-14);
}

}  // namespace
