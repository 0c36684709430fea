// SPDX-License-Identifier: Apache-2.0
#include "adamw.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <kolo/kolo.hpp>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "random.hpp"

namespace {

using gpt::AdamW;
using gpt::Layout;

const gpt::Config config = {.vocabulary = 8, .context = 4, .layers = 1, .heads = 1, .width = 8};

/// Rank 0's, as Checkpointer gives it to all ranks.
kolo::NamedStates on_all_ranks(kolo::NamedStates parts) {
  for (const char* name : {"steps", "parameters", "first moments", "second moments"}) {
    std::string text = parts[name].text();
    kolo::broadcast(text, 0);
    parts[name] = text;
  }
  return parts;
}

kolo::NamedViews views_of(kolo::NamedStates states) {
  kolo::NamedViews views;
  for (auto& [name, state] : states) views.emplace(name, std::move(state));
  return views;
}

kolo::NamedStates copies_of(const kolo::NamedViews& views) {
  kolo::NamedStates states;
  for (const auto& [name, view] : views) states.emplace(name, view.copy());
  return states;
}

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
                                               .accumulation = kolo::Accumulation::mean,
                                               .compare = {.at_start = false}});
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
  adamw.make_state(adamw.whole());
  std::ranges::fill(adamw.parameter_memory(), 1.0F);
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
    EXPECT_NEAR(adamw.parameter_memory()[in_matrix], 1.0F - 0.005F - 0.01F * sign(in_matrix),
                1e-6F);
    EXPECT_NEAR(adamw.parameter_memory()[in_vector], 1.0F - 0.01F * sign(in_vector), 1e-6F);
  }
}

TEST(AdamW, RefusesACheckpointOfAnotherNetwork) {
  const kolo::Session session;
  AdamW small{Layout(config)};
  small.make_state(small.whole());
  gpt::Config wider = config;
  wider.width = 16;
  AdamW wide{Layout(wider)};
  wide.make_state(wide.whole());
  const kolo::Checkpoint checkpoint{.parts = views_of(on_all_ranks(small.state()))};
  EXPECT_NO_THROW(small.load(checkpoint));
  EXPECT_THROW(wide.load(checkpoint), kolo::Error);
}

// Sums of these round, so that another order of additions gives other bits.
void add_rounding_gradients(AdamW& adamw, int step, int pass) {
  gpt::Random random(static_cast<std::uint64_t>(1000 * step + 10 * pass + kolo::rank()));
  for (float& gradient : adamw.gradient_memory()) gradient += static_cast<float>(random.normal());
}

/// Steps of two passes, of which some are clipped.
template <typename Optimizer>
void train(const Layout& layout, AdamW& adamw, Optimizer& optimizer, int first, int last) {
  for (int step = first; step < last; ++step) {
    adamw.clear_gradients();
    for (int pass = 0; pass < 2; ++pass) {
      add_rounding_gradients(adamw, step, pass);
      for (const gpt::Piece& piece : layout.pieces) optimizer.ready(piece.name);
      if (pass == 0) optimizer.end_pass();
    }
    kolo::ReducedGradients reduced = optimizer.reduce();
    const double max_norm = step % 2 == 0 ? 1.0 : 1e6;
    const double norm = optimizer.clip_grad_norm(reduced, max_norm);
    EXPECT_GT(norm, 2.0);
    EXPECT_LT(norm, 1e6);
    adamw.set_learning_rate(0.01 / (step + 1));
    optimizer.step(std::move(reduced));
  }
}

std::vector<float> parameters_of(AdamW& adamw) {
  const std::span<float> parameters = adamw.parameter_memory();
  return {parameters.begin(), parameters.end()};
}

using Sharded = std::tuple<kolo::Sharding, kolo::Compression>;
class ShardedAdamW : public ::testing::TestWithParam<Sharded> {
 protected:
  ShardedAdamW() {
    const auto [sharding, compression] = GetParam();
    // Sums of shards are not rounded to two bytes.
    same_bits = sharding == kolo::Sharding::state || compression == kolo::Compression::none;
    options = {.compression = compression,
               .backward_passes_per_step = 2,
               .accumulation = kolo::Accumulation::mean};
  }

  /// Trains replicated, on all ranks alike.
  kolo::Checkpoint replicated(int last) const {
    AdamW adamw(layout);
    adamw.make_state(adamw.whole());
    gpt::initialize(adamw.parameter_memory(), layout, 1);
    kolo::DistributedOptimizer optimizer(adamw, options);
    train(layout, adamw, optimizer, 0, last);
    return {.step = last, .parts = views_of(on_all_ranks(adamw.state()))};
  }

  const kolo::Session session;
  const Layout layout{config};
  kolo::DistributedOptimizerOptions options;
  bool same_bits = false;
};

TEST_P(ShardedAdamW, TrainsAsTheReplicatedOneAndIsEqualOnAllRanks) {
  AdamW adamw(layout);
  gpt::initialize(adamw.parameter_memory(), layout, 1);
  kolo::ShardedOptimizer optimizer(adamw, options, std::get<kolo::Sharding>(GetParam()));
  adamw.make_state(optimizer.shards());
  train(layout, adamw, optimizer, 0, 5);

  std::vector<float> of_rank_0 = parameters_of(adamw);
  kolo::broadcast(of_rank_0, 0);
  EXPECT_EQ(parameters_of(adamw), of_rank_0);
  const kolo::NamedStates state = on_all_ranks(adamw.state());
  if (same_bits) {
    EXPECT_EQ(state, copies_of(replicated(5).parts));
  }
}

TEST_P(ShardedAdamW, GoesOnFromAReplicatedCheckpointAndBack) {
  const kolo::Checkpoint before = replicated(2);
  AdamW adamw(layout);
  kolo::ShardedOptimizer optimizer(adamw, options, std::get<kolo::Sharding>(GetParam()));
  adamw.make_state(optimizer.shards());
  adamw.load(before);
  EXPECT_EQ(on_all_ranks(adamw.state()), copies_of(before.parts));
  train(layout, adamw, optimizer, 2, 4);
  const kolo::Checkpoint saved{.step = 4, .parts = views_of(on_all_ranks(adamw.state()))};
  if (same_bits) {
    EXPECT_EQ(copies_of(saved.parts), copies_of(replicated(4).parts));
  }

  AdamW whole(layout);
  whole.make_state(whole.whole());
  whole.load(saved);
  EXPECT_EQ(on_all_ranks(whole.state()), copies_of(saved.parts));
}

INSTANTIATE_TEST_SUITE_P(Options, ShardedAdamW,
                         ::testing::Combine(::testing::Values(kolo::Sharding::state,
                                                              kolo::Sharding::state_and_gradients),
                                            ::testing::Values(kolo::Compression::none,
                                                              kolo::Compression::bf16)));

}  // namespace
