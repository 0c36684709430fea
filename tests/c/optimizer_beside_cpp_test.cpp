// SPDX-License-Identifier: Apache-2.0
// Optimizers of the C interface beside those of C++: the same bits, also with ranks of both in one
// optimizer.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "../session/fixture.hpp"
#include "kolo/c/kolo.h"

namespace kolo::internal {
namespace {

/// Two vectors whose gradients depend on the weights, the rank and the step.
struct Descent {
  std::vector<float> weights[2] = {std::vector<float>(37, 1.0F), std::vector<float>(1001, -0.5F)};
  std::vector<float> slopes[2] = {std::vector<float>(37), std::vector<float>(1001)};

  std::vector<NamedTensor> gradients() { return {{"a", slopes[0]}, {"b", slopes[1]}}; }
  std::vector<NamedTensor> parameters() { return {{"a", weights[0]}, {"b", weights[1]}}; }
  void step() {
    for (std::size_t i = 0; i < 2; ++i) update(i, 0, static_cast<std::int64_t>(weights[i].size()));
  }
  void step(std::span<const Shard> shards) {
    for (const Shard& shard : shards) update(shard.parameter, shard.begin, shard.end);
  }

  void backward(int step) {
    for (std::size_t i = 0; i < 2; ++i)
      for (std::size_t k = 0; k < slopes[i].size(); ++k)
        slopes[i][k] = std::sin(static_cast<float>(step * 31 + rank() * 7) +
                                static_cast<float>(i + k) * weights[i][k]);
  }
  void update(std::size_t i, std::int64_t begin, std::int64_t end) {
    for (auto k = static_cast<std::size_t>(begin); k < static_cast<std::size_t>(end); ++k)
      weights[i][k] -= 0.1F * slopes[i][k];
  }
};

constexpr int steps = 5;

void train(Descent& model, auto& optimizer) {
  for (int step = 0; step < steps; ++step) {
    model.backward(step);
    optimizer.ready("b");
    if (step % 2 == 0) {
      optimizer.step();
    } else {
      ReducedGradients reduced = optimizer.reduce();
      static_cast<void>(optimizer.clip_grad_norm(reduced, 3.0));
      if (step == 3) continue;  // a step that all ranks skip
      optimizer.step(std::move(reduced));
    }
  }
}

void train_in_cpp(Descent& model, Compression compression, kolo_sharding sharding) {
  const DistributedOptimizerOptions options{.compression = compression};
  if (sharding == KOLO_SHARD_NOTHING) {
    DistributedOptimizer optimizer(model, options);
    return train(model, optimizer);
  }
  const auto parts = sharding == KOLO_SHARD_STATE ? Sharding::state : Sharding::state_and_gradients;
  ShardedOptimizer optimizer(model, options, parts);
  train(model, optimizer);
}

void update(Descent& model, kolo_optimizer* optimizer, kolo_sharding sharding) {
  if (sharding == KOLO_SHARD_NOTHING) return model.step();
  for (std::size_t i = 0; i < 2; ++i) {
    std::int64_t begin = 0;
    std::int64_t end = 0;
    ASSERT_EQ(kolo_optimizer_shard(optimizer, i, &begin, &end), KOLO_OK);
    model.update(i, begin, end);
  }
}

void train_in_c(Descent& model, Compression compression, kolo_sharding sharding) {
  const std::int64_t sizes[2] = {37, 1001};
  const auto list = [&](std::vector<float>* values) {
    return std::vector<kolo_named_tensor>{
        {"a", {values[0].data(), KOLO_F32, {KOLO_CPU, 0}, 1, &sizes[0]}},
        {"b", {values[1].data(), KOLO_F32, {KOLO_CPU, 0}, 1, &sizes[1]}}};
  };
  const auto gradients = list(model.slopes);
  const auto parameters = list(model.weights);
  kolo_optimizer_options options = KOLO_OPTIMIZER_OPTIONS;
  options.compression = static_cast<kolo_compression>(compression);
  options.sharding = sharding;
  kolo_optimizer* optimizer = nullptr;
  ASSERT_EQ(kolo_optimizer_create(gradients.data(), 2, parameters.data(), 2, &options, &optimizer),
            KOLO_OK)
      << kolo_last_error_message();
  for (int step = 0; step < steps; ++step) {
    model.backward(step);
    ASSERT_EQ(kolo_optimizer_ready(optimizer, "b"), KOLO_OK);
    if (step % 2 == 0) {
      ASSERT_EQ(kolo_optimizer_begin_step(optimizer), KOLO_OK) << kolo_last_error_message();
    } else {
      ASSERT_EQ(kolo_optimizer_reduce(optimizer), KOLO_OK) << kolo_last_error_message();
      ASSERT_EQ(kolo_optimizer_clip_grad_norm(optimizer, 3.0, nullptr), KOLO_OK);
      if (step == 3) continue;
      ASSERT_EQ(kolo_optimizer_begin_reduced_step(optimizer), KOLO_OK) << kolo_last_error_message();
    }
    update(model, optimizer, sharding);
    ASSERT_EQ(kolo_optimizer_end_step(optimizer), KOLO_OK) << kolo_last_error_message();
  }
  ASSERT_EQ(kolo_optimizer_free(optimizer), KOLO_OK);
}

class OptimizerBesideCpp : public WithSession {};

TEST_F(OptimizerBesideCpp, RanksOfBothInterfacesTrainTheSameBits) {
  for (const kolo_sharding sharding :
       {KOLO_SHARD_NOTHING, KOLO_SHARD_STATE, KOLO_SHARD_STATE_AND_GRADIENTS}) {
    for (const Compression compression : {Compression::none, Compression::bf16}) {
      Descent in_cpp;
      train_in_cpp(in_cpp, compression, sharding);
      Descent in_c;
      train_in_c(in_c, compression, sharding);
      Descent mixed;
      if (me_ % 2 == 0)
        train_in_c(mixed, compression, sharding);
      else
        train_in_cpp(mixed, compression, sharding);
      for (std::size_t i = 0; i < 2; ++i) {
        EXPECT_EQ(in_c.weights[i], in_cpp.weights[i]) << "sharding " << sharding;
        EXPECT_EQ(mixed.weights[i], in_cpp.weights[i]) << "sharding " << sharding;
      }
    }
  }
}

TEST_F(OptimizerBesideCpp, OneMistakeHasOneText) {
  Descent model;
  DistributedOptimizer in_cpp(model);
  const auto error = thrown_by<InvalidArgument>([&] { in_cpp.ready("c"); });
  const std::int64_t size = 37;
  const kolo_named_tensor gradient = {"a",
                                      {model.slopes[0].data(), KOLO_F32, {KOLO_CPU, 0}, 1, &size}};
  kolo_optimizer* optimizer = nullptr;
  ASSERT_EQ(kolo_optimizer_create(&gradient, 1, nullptr, 0, nullptr, &optimizer), KOLO_OK);
  EXPECT_EQ(kolo_optimizer_ready(optimizer, "c"), KOLO_INVALID_ARGUMENT);
  EXPECT_STREQ(kolo_last_error_message(), error.what());
  EXPECT_EQ(kolo_last_error_tensor(), error.tensor());
  EXPECT_EQ(kolo_optimizer_free(optimizer), KOLO_OK);
}

TEST_F(OptimizerBesideCpp, EnumeratorsHaveTheSameNumbers) {
  EXPECT_EQ(KOLO_ACCUMULATE_SUM, static_cast<int>(Accumulation::sum));
  EXPECT_EQ(KOLO_ACCUMULATE_MEAN, static_cast<int>(Accumulation::mean));
}

}  // namespace
}  // namespace kolo::internal
