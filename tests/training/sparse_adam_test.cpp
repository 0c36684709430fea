// SPDX-License-Identifier: Apache-2.0
// A trainer as programs in C have it: a large table of which a batch uses few rows, threads that
// each compute a part of the batch, and an Adam that steps only the rows that were used.
#include <algorithm>
#include <cmath>
#include <functional>
#include <thread>
#include <vector>

#include "../session/fixture.hpp"
#include "../support/random.hpp"
#include "kolo/optimizer.hpp"

namespace kolo::internal {
namespace {

constexpr std::size_t rows = 200;
constexpr std::size_t width = 4;
constexpr std::size_t batch = 24;
constexpr std::size_t uses = 3;  // rows of an example

struct Example {
  std::size_t rows[uses];
  double wanted;
};

Example example_of(int step, std::size_t index) {
  campaign::Random random(campaign::hash({7, static_cast<std::uint64_t>(step), index}));
  Example example{};
  for (std::size_t& row : example.rows) row = random.below(rows);
  example.wanted = static_cast<double>(example.rows[0] % 5) - 2.0;
  return example;
}

/// The gradient that one thread has computed.
struct Gradient {
  std::vector<double> table = std::vector<double>(rows * width);
  std::vector<double> used = std::vector<double>(rows);  // how often
};

struct Table {
  std::vector<double> values = std::vector<double>(rows * width);
  std::vector<double> first = std::vector<double>(rows * width);
  std::vector<double> second = std::vector<double>(rows * width);
  std::vector<int> steps = std::vector<int>(rows);  // of each row
  Gradient gradient{};

  Table() {
    campaign::Random random(3);
    for (double& value : values) value = static_cast<double>(random.below(1000)) / 1000.0 - 0.5;
  }

  std::vector<NamedTensor> gradients() {
    return {{"table", gradient.table}, {"used", gradient.used}};
  }

  /// Adds the gradient of the mean loss of a batch: the square of the sum of all rows' elements.
  void add(const Example& example, Gradient& to) const {
    double sum = -example.wanted;
    for (const std::size_t row : example.rows)
      for (std::size_t i = 0; i < width; ++i) sum += values[row * width + i];
    for (const std::size_t row : example.rows) {
      to.used[row] += 1.0;
      for (std::size_t i = 0; i < width; ++i)
        to.table[row * width + i] += 2.0 * sum / static_cast<double>(batch);
    }
  }

  /// The examples first, first + every, ..., by two threads.
  void compute(int step, std::size_t begin, std::size_t every) {
    std::vector<Gradient> parts(2);
    std::vector<std::thread> threads;
    for (std::size_t part = 0; part < parts.size(); ++part)
      threads.emplace_back([&, part] {
        for (std::size_t i = begin + part * every; i < batch; i += parts.size() * every)
          add(example_of(step, i), parts[part]);
      });
    for (std::thread& thread : threads) thread.join();
    gradient = {};
    for (const Gradient& part : parts) {
      std::ranges::transform(gradient.table, part.table, gradient.table.begin(), std::plus());
      std::ranges::transform(gradient.used, part.used, gradient.used.begin(), std::plus());
    }
  }

  /// Adam, only for the rows that an example of any rank has used.
  void step() {
    for (std::size_t row = 0; row < rows; ++row) {
      if (gradient.used[row] == 0.0) continue;
      ++steps[row];
      for (std::size_t i = row * width; i < (row + 1) * width; ++i) {
        const double slope = gradient.table[i];
        first[i] = 0.9 * first[i] + 0.1 * slope;
        second[i] = 0.99 * second[i] + 0.01 * slope * slope;
        const double mean = first[i] / (1.0 - std::pow(0.9, steps[row]));
        const double square = second[i] / (1.0 - std::pow(0.99, steps[row]));
        values[i] -= 0.05 * mean / (std::sqrt(square) + 1e-8);
      }
    }
  }
};

using SparseAdamTest = WithSession;

TEST_F(SparseAdamTest, StepsTheRowsThatAnyRankHasUsedAsOneProcessDoes) {
  constexpr int steps = 40;
  Table alone;
  for (int step = 0; step < steps; ++step) {
    alone.compute(step, 0, 1);
    alone.step();
  }
  Table table;
  DistributedOptimizer optimizer(table, {.op = ReduceOp::sum});
  for (int step = 0; step < steps; ++step) {
    table.compute(step, static_cast<std::size_t>(me_), static_cast<std::size_t>(n_));
    optimizer.step();
  }
  EXPECT_THAT(table.values, testing::Pointwise(testing::DoubleNear(1e-9), alone.values));
  EXPECT_EQ(table.steps, alone.steps);
  EXPECT_LT(*std::ranges::min_element(alone.steps), steps) << "every step uses every row";
}

}  // namespace
}  // namespace kolo::internal
