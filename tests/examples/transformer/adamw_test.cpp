// SPDX-License-Identifier: Apache-2.0
#include "adamw.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <kolo/kolo.hpp>

namespace {

using gpt::AdamW;
using gpt::Layout;

const gpt::Config config = {.vocabulary = 8, .context = 4, .layers = 1, .heads = 1, .width = 8};

std::uint64_t submitted() { return kolo::statistics().submitted; }

// The gradient of parameter i on rank r in pass p is (r + 1) (p + 1) (i % 5 - 2).
void add_gradients(AdamW& adamw, int pass) {
  const auto gradients = adamw.gradient_memory();
  for (std::size_t i = 0; i < gradients.size(); ++i)
    gradients[i] +=
        static_cast<float>((kolo::rank() + 1) * (pass + 1)) * (static_cast<float>(i % 5) - 2.0F);
}

class AdamWOnRanks : public ::testing::TestWithParam<kolo::Compression> {};

TEST_P(AdamWOnRanks, TheMeanOfPassesIsAveragedAndNothingTravelsBefore) {
  constexpr int passes = 3;
  const kolo::Session session;
  const Layout layout(config);
  AdamW adamw(layout);
  kolo::DistributedOptimizer optimizer(adamw, {.compression = GetParam(),
                                               .backward_passes_per_step = passes,
                                               .accumulation = kolo::Accumulation::mean});
  const std::uint64_t before = submitted();
  for (int pass = 0; pass < passes; ++pass) {
    add_gradients(adamw, pass);
    EXPECT_EQ(submitted(), before) << "something has travelled before pass " << pass;
    for (const gpt::Piece& piece : layout.pieces) optimizer.ready(piece.name);
    if (pass + 1 < passes) optimizer.end_pass();
  }
  optimizer.synchronize();
  EXPECT_EQ(submitted(), before + layout.pieces.size());

  // The mean over the passes is (passes + 1) / 2 = 2, over the ranks (size + 1) / 2.
  const float factor = static_cast<float>(kolo::size() + 1);
  const float precision = GetParam() == kolo::Compression::none ? 1e-6F : 1e-2F;
  for (std::size_t i = 0; i < layout.size; ++i) {
    const float expected = factor * (static_cast<float>(i % 5) - 2.0F);
    ASSERT_NEAR(adamw.gradient_memory()[i], expected, precision * std::abs(expected)) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Compressions, AdamWOnRanks,
                         ::testing::Values(kolo::Compression::none, kolo::Compression::fp16,
                                           kolo::Compression::bf16));

// The first step moves against the sign of the gradient by the learning rate, for any magnitude.
TEST(AdamW, FirstStepAndWeightDecay) {
  const kolo::Session session;
  const Layout layout(config);
  AdamW adamw(layout, {.weight_decay = 0.5});
  std::ranges::fill(adamw.parameters(), 1.0F);
  adamw.set_learning_rate(0.01);
  add_gradients(adamw, 0);
  adamw.step();
  const gpt::Range matrix = layout.blocks[0].up_weight;
  const gpt::Range vector = layout.blocks[0].up_bias;
  for (std::size_t i = 0; i < vector.size; ++i) {
    const auto sign = [](std::size_t at) {
      return static_cast<float>(at % 5 > 2) - static_cast<float>(at % 5 < 2);
    };
    const std::size_t in_matrix = matrix.begin + i;
    const std::size_t in_vector = vector.begin + i;
    EXPECT_NEAR(adamw.parameters()[in_matrix], 1.0F - 0.005F - 0.01F * sign(in_matrix), 1e-6F);
    EXPECT_NEAR(adamw.parameters()[in_vector], 1.0F - 0.01F * sign(in_vector), 1e-6F);
  }
}

TEST(AdamW, ClipsAllGradientsTogether) {
  const kolo::Session session;
  const Layout layout(config);
  AdamW adamw(layout);
  std::ranges::fill(adamw.gradient_memory(), 2.0F);
  const double norm = 2.0 * std::sqrt(static_cast<double>(layout.size));
  EXPECT_DOUBLE_EQ(adamw.clip(2.0 * norm), norm);
  EXPECT_EQ(adamw.gradient_memory()[0], 2.0F);
  EXPECT_DOUBLE_EQ(adamw.clip(norm / 4), norm);
  for (const float gradient : adamw.gradient_memory()) EXPECT_FLOAT_EQ(gradient, 0.5F);
}

TEST(AdamW, RefusesACheckpointOfAnotherNetwork) {
  const kolo::Session session;
  AdamW small{Layout(config)};
  gpt::Config wider = config;
  wider.width = 16;
  AdamW wide{Layout(wider)};
  kolo::Checkpoint checkpoint{.parts = small.state()};
  EXPECT_NO_THROW(small.load(checkpoint));
  EXPECT_THROW(wide.load(checkpoint), kolo::Error);
}

}  // namespace
