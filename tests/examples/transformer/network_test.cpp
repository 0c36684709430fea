// SPDX-License-Identifier: Apache-2.0
#include "network.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "random.hpp"

namespace {

using gpt::Batch;
using gpt::Config;
using gpt::Layout;
using gpt::Network;

constexpr Config small = {.vocabulary = 11, .context = 6, .layers = 2, .heads = 2, .width = 6};

// In f64, where rounding is small enough to detect a wrong gradient by finite differences.
class NetworkTest : public ::testing::Test {
 protected:
  NetworkTest() : parameters(layout.size), gradients(layout.size) {
    RecordProperty("seed", 1);
    gpt::Random random(1);
    for (double& parameter : parameters) parameter = 0.5 * random.normal();
    batch.sequences = 3;
    for (std::size_t i = 0; i < 3 * length; ++i) {
      batch.inputs.push_back(static_cast<std::uint8_t>(random.below(small.vocabulary)));
      batch.targets.push_back(static_cast<std::uint8_t>(random.below(small.vocabulary)));
    }
  }

  double loss() { return network.forward(parameters.data(), batch); }
  double backward(const gpt::OnReady& on_ready = [](const std::string&) {}) {
    const double value = loss();
    network.backward(parameters.data(), gradients.data(), on_ready);
    return value;
  }

  static constexpr std::size_t length = 5;  // one less than the context
  const Layout layout{small};
  Network<double> network{small, layout};
  std::vector<double> parameters, gradients;
  Batch batch;
};

TEST_F(NetworkTest, GradientsAreWhatDifferencesSay) {
  backward();
  constexpr double step = 1e-5;
  for (std::size_t i = 0; i < layout.size; ++i) {
    const double value = parameters[i];
    parameters[i] = value + step;
    const double above = loss();
    parameters[i] = value - step;
    const double below = loss();
    parameters[i] = value;
    ASSERT_NEAR(gradients[i], (above - below) / (2 * step), 1e-8) << "parameter " << i;
  }
}

TEST_F(NetworkTest, NearlyAllGradientsAreThere) {
  backward();
  const std::size_t unused_position = small.width;  // the context is longer than the batch
  const auto zeros = static_cast<std::size_t>(std::ranges::count(gradients, 0.0));
  EXPECT_GE(zeros, unused_position);
  EXPECT_LT(zeros, unused_position + layout.size / 20);
}

TEST_F(NetworkTest, GradientsOfSeveralPassesAddUp) {
  backward();
  const std::vector<double> once = gradients;
  backward();
  for (std::size_t i = 0; i < layout.size; ++i) EXPECT_NEAR(gradients[i], 2 * once[i], 1e-14);
}

TEST_F(NetworkTest, APieceIsReadyOnceAndNotChangedAfterwards) {
  std::map<std::string, std::vector<double>> when_ready;
  std::vector<std::string> order;
  const auto values = [&](const gpt::Range& range) {
    const auto begin = gradients.begin() + static_cast<std::ptrdiff_t>(range.begin);
    return std::vector<double>(begin, begin + static_cast<std::ptrdiff_t>(range.size));
  };
  backward([&](const std::string& name) {
    order.push_back(name);
    for (const gpt::Piece& piece : layout.pieces)
      if (piece.name == name) when_ready[name] = values(piece.range);
  });
  EXPECT_THAT(order, ::testing::ElementsAre("norm", "block.1", "block.0", "embeddings"));
  for (const gpt::Piece& piece : layout.pieces)
    EXPECT_EQ(when_ready[piece.name], values(piece.range)) << piece.name;
}

// Later tokens have no influence on a token: each prefix alone gives the same loss.
TEST_F(NetworkTest, IsCausal) {
  const double together = loss();
  double apart = 0.0;
  for (std::size_t row = 0; row < batch.inputs.size(); ++row) {
    const std::size_t first = row / length * length;
    const auto scores = network.scores_after(
        parameters.data(), std::span(batch.inputs).subspan(first, row - first + 1));
    double sum = 0.0;
    for (const double score : scores) sum += std::exp(score);
    apart += std::log(sum) - scores[batch.targets[row]];
  }
  EXPECT_NEAR(together, apart / static_cast<double>(batch.inputs.size()), 1e-12);
}

TEST(Layout, HoldsEveryParameterOnce) {
  const Config config;
  const Layout layout(config);
  const std::size_t width = config.width;
  const std::size_t of_a_block = 12 * width * width + 13 * width;
  EXPECT_EQ(layout.size,
            (config.vocabulary + config.context) * width + 2 * width + config.layers * of_a_block);
  std::size_t end = 0;
  for (const gpt::Piece& piece : layout.pieces) {
    EXPECT_EQ(piece.range.begin, end) << piece.name;
    end += piece.range.size;
  }
  EXPECT_EQ(end, layout.size);
}

// Without training every byte is about as likely as any other.
TEST(Initialize, StartsNearTheLossOfGuessing) {
  const Config config;
  const Layout layout(config);
  std::vector<float> parameters(layout.size);
  gpt::initialize(parameters, layout, 1);
  Batch batch{.inputs = {}, .targets = {}, .sequences = 2};
  for (std::size_t i = 0; i < 2 * config.context; ++i) {
    batch.inputs.push_back(static_cast<std::uint8_t>(3 * i));
    batch.targets.push_back(static_cast<std::uint8_t>(5 * i));
  }
  Network<float> network(config, layout);
  EXPECT_NEAR(network.forward(parameters.data(), batch), std::log(256.0), 0.1);
}

}  // namespace
