// SPDX-License-Identifier: Apache-2.0
// kolo::ShardedOptimizer for a custom optimizer: the same training as with DistributedOptimizer.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <span>
#include <stdexcept>

#include "../session/fixture.hpp"
#include "kolo/optimizer.hpp"
#include "kolo/sharded_optimizer.hpp"

namespace kolo::internal {
namespace {

using testing::HasSubstr;

/// Adam on tensors of odd sizes. The state is that of whole parameters, or of parts.
class Adam {
 public:
  Adam() {
    for (const std::size_t elements : sizes) {
      weights_.emplace_back(elements);
      gradients_.emplace_back(elements);
      auto& weight = weights_.back();
      std::iota(weight.begin(), weight.end(), static_cast<float>(elements));
    }
  }

  std::vector<NamedTensor> gradients() { return named(gradients_); }
  std::vector<NamedTensor> parameters() { return named(weights_); }

  void step() {
    std::vector<Shard> all;
    for (std::size_t i = 0; i < sizes.size(); ++i)
      all.push_back({i, 0, static_cast<std::int64_t>(sizes[i])});
    step(std::span<const Shard>(all));
  }

  void step(std::span<const Shard> shards) {
    if (throws) throw std::runtime_error("no step today");
    ++steps_;
    moments_.resize(shards.size());
    for (std::size_t i = 0; i < shards.size(); ++i) {
      moments_[i].resize(static_cast<std::size_t>(shards[i].size()));
      for (std::int64_t k = 0; k < shards[i].size(); ++k)
        step_element(moments_[i][static_cast<std::size_t>(k)], shards[i],
                     static_cast<std::size_t>(shards[i].begin + k));
    }
  }

  /// The gradients of this rank in a pass; they accumulate.
  void backward(int pass) {
    for (std::size_t i = 0; i < sizes.size(); ++i)
      for (std::size_t k = 0; k < sizes[i]; ++k)
        gradients_[i][k] +=
            std::sin(static_cast<float>(pass * 31 + rank() * 7) + static_cast<float>(i + k)) *
            weights_[i][k];
  }
  void zero() {
    for (auto& gradient : gradients_) std::fill(gradient.begin(), gradient.end(), 0.0F);
  }

  [[nodiscard]] const std::vector<std::vector<float>>& weights() const { return weights_; }
  [[nodiscard]] std::size_t moments() const {
    std::size_t count = 0;
    for (const auto& list : moments_) count += list.size();
    return count;
  }

  bool throws = false;
  static inline const std::vector<std::size_t> sizes{1, 7, 64, 1003};
  static std::string name(std::size_t i) { return "tensor" + std::to_string(i); }

 private:
  struct Moments {
    float first = 0.0F;
    float second = 0.0F;
  };

  void step_element(Moments& moments, const Shard& shard, std::size_t k) {
    const float gradient = gradients_[shard.parameter][k];
    moments.first += 0.1F * (gradient - moments.first);
    moments.second += 0.001F * (gradient * gradient - moments.second);
    weights_[shard.parameter][k] -=
        0.01F * moments.first / (std::sqrt(moments.second) + 1e-8F) * static_cast<float>(steps_);
  }

  static std::vector<NamedTensor> named(std::vector<std::vector<float>>& values) {
    std::vector<NamedTensor> tensors;
    for (std::size_t i = 0; i < values.size(); ++i) tensors.push_back({name(i), values[i]});
    return tensors;
  }

  std::vector<std::vector<float>> weights_;
  std::vector<std::vector<float>> gradients_;
  std::vector<std::vector<Moments>> moments_;
  int steps_ = 0;
};

class Sharded : public WithSession {
 protected:
  // `run(adam, optimizer, step)`.
  template <typename Run>
  void expect_same_training(const DistributedOptimizerOptions& options, const Run& run) {
    Adam replicated;
    DistributedOptimizer whole(replicated, options);
    for (int step = 0; step < 6; ++step) run(replicated, whole, step);
    for (const Sharding sharding : {Sharding::state, Sharding::state_and_gradients}) {
      Adam adam;
      ShardedOptimizer parts(adam, options, sharding);
      for (int step = 0; step < 6; ++step) run(adam, parts, step);
      EXPECT_EQ(adam.weights(), replicated.weights());
      std::uint64_t state = adam.moments();
      allreduce(state, {.op = ReduceOp::sum});
      EXPECT_EQ(state, replicated.moments());
    }
  }
};

TEST_F(Sharded, TrainsAsTheReplicatedOptimizer) {
  const auto run = [](Adam& adam, auto& optimizer, int step) {
    adam.zero();
    adam.backward(step);
    if (rank() % 2 == 0) optimizer.ready(Adam::name(2));
    optimizer.step();
  };
  expect_same_training({}, run);
  expect_same_training({.op = ReduceOp::sum}, run);
  expect_same_training({.num_groups = 2}, run);
  expect_same_training({.groups = {{Adam::name(0), Adam::name(3)}}}, run);
  expect_same_training({.backward_passes_per_step = 2, .accumulation = Accumulation::mean},
                       [](Adam& adam, auto& optimizer, int step) {
                         adam.zero();
                         adam.backward(2 * step);
                         if (step != 3) {
                           optimizer.end_pass();
                           adam.backward(2 * step + 1);
                         }
                         optimizer.step();
                       });
}

TEST_F(Sharded, AllRanksFindTheSameNormAndSkipTheSameSteps) {
  for (const Sharding sharding : {Sharding::state, Sharding::state_and_gradients}) {
    Adam adam;
    ShardedOptimizer optimizer(adam, {.op = ReduceOp::sum}, sharding);
    Adam whole;
    DistributedOptimizer replicated(whole, {.op = ReduceOp::sum});
    for (int step = 0; step < 4; ++step) {
      for (Adam* each : {&adam, &whole}) {
        each->zero();
        each->backward(step);
        if (step == 1 && rank() == size() - 1)
          static_cast<float*>(each->gradients()[3].tensor.data())[5] = INFINITY;
      }
      ReducedGradients sums = replicated.reduce();
      const double expected = replicated.clip_grad_norm(sums, 1.0);
      ReducedGradients reduced = optimizer.reduce();
      const double norm = optimizer.clip_grad_norm(reduced, 1.0);
      if (step == 1) {
        EXPECT_FALSE(std::isfinite(norm));
        optimizer.discard();
        replicated.discard();
        continue;
      }
      EXPECT_NEAR(norm, expected, 1e-9 * expected);
      std::vector<double> norms{norm};
      allreduce(norms, {.op = ReduceOp::max});
      EXPECT_EQ(norms.front(), norm);
      optimizer.step(std::move(reduced));
      replicated.step(std::move(sums));
    }
    std::vector<float> mine = adam.weights().back();
    std::vector<float> first = mine;
    broadcast(first, 0);
    EXPECT_EQ(mine, first);
    for (std::size_t k = 0; k < mine.size(); ++k)
      EXPECT_NEAR(mine[k], whole.weights().back()[k], 1e-3F);
  }
}

TEST_F(Sharded, ARankThatJoinsOrSkipsAloneIsMissed) {
  if (n_ == 1) GTEST_SKIP() << "needs several ranks";
  for (const Sharding sharding : {Sharding::state, Sharding::state_and_gradients}) {
    Adam adam;
    ShardedOptimizer optimizer(adam, {}, sharding);
    const auto before = adam.weights();
    adam.backward(0);
    if (me_ != n_ - 1) {
      try {
        optimizer.step();
        ADD_FAILURE() << "no error";
      } catch (const Mismatch& error) {
        EXPECT_THAT(error.what(), HasSubstr("join"));
      }
      EXPECT_EQ(adam.weights(), before);
    }
    (void)join();
    adam.zero();
    adam.backward(1);
    optimizer.step();
    adam.backward(2);
    if (me_ == 0) {
      EXPECT_THROW(optimizer.discard(), Mismatch);
    } else {
      EXPECT_THROW(optimizer.step(), Mismatch);
    }
    broadcast_parameters(adam.parameters(), 0);
    adam.zero();
    adam.backward(3);
    optimizer.step();
    {
      [[maybe_unused]] const ReducedGradients dropped = optimizer.reduce();  // on all ranks
    }
    adam.zero();
    adam.backward(4);
    optimizer.step();
    ReducedGradients reduced = optimizer.reduce();
    if (me_ == 0) {  // drops its step
      EXPECT_THROW(reduced = optimizer.reduce(), Mismatch);
    } else {
      EXPECT_THROW(optimizer.step(std::move(reduced)), Mismatch);
    }
    broadcast_parameters(adam.parameters(), 0);
    adam.zero();
    adam.backward(5);
    optimizer.step();
    std::vector<float> first = adam.weights().back();
    broadcast(first, 0);
    EXPECT_EQ(adam.weights().back(), first);
  }
}

// `ready` is optional, so it must not wait for ranks that do not call it.
TEST_F(Sharded, AfterADroppedStepGradientsMayBecomeReadyInAnyOrder) {
  for (const Sharding sharding : {Sharding::state, Sharding::state_and_gradients}) {
    Adam first;
    Adam second;
    Adam whole;
    ShardedOptimizer first_optimizer(first, {}, sharding);
    ShardedOptimizer second_optimizer(second, {}, sharding);
    DistributedOptimizer replicated(whole, {});
    const auto backward = [&](int step) {
      for (Adam* each : {&first, &second, &whole}) {
        each->zero();
        each->backward(step);
      }
    };
    backward(0);
    {
      [[maybe_unused]] const ReducedGradients dropped = first_optimizer.reduce();
      [[maybe_unused]] const ReducedGradients also_dropped = second_optimizer.reduce();
    }
    backward(1);
    if (me_ == 0) {
      second_optimizer.ready(Adam::name(1));
    } else {
      first_optimizer.ready(Adam::name(0));
    }
    first_optimizer.step();
    second_optimizer.step();
    replicated.step();
    EXPECT_EQ(first.weights(), whole.weights());
    EXPECT_EQ(second.weights(), whole.weights());
  }
}

TEST_F(Sharded, AStepThatThrowsOnOneRankIsAMismatchOnAll) {
  if (n_ == 1) GTEST_SKIP() << "needs several ranks";
  for (const Sharding sharding : {Sharding::state, Sharding::state_and_gradients}) {
    Adam adam;
    ShardedOptimizer optimizer(adam, {}, sharding);
    adam.throws = me_ == 0;
    adam.backward(0);
    if (me_ == 0) {
      EXPECT_THROW(optimizer.step(), std::runtime_error);
      optimizer.ready(Adam::name(1));
      EXPECT_THROW((void)optimizer.reduce(), Mismatch);
    } else {
      EXPECT_THROW(optimizer.step(), Mismatch);
    }
    adam.throws = false;
    broadcast_parameters(adam.parameters(), 0);
    adam.zero();
    adam.backward(1);
    optimizer.step();
    std::vector<float> first = adam.weights().back();
    broadcast(first, 0);
    EXPECT_EQ(adam.weights().back(), first);
  }
}

/// Its parameters are not those of its gradients.
struct Unlike {
  std::vector<float> gradient = std::vector<float>(3);
  std::vector<float> parameter = std::vector<float>(4);
  std::vector<NamedTensor> gradients() { return {{"w", gradient}}; }
  std::vector<NamedTensor> parameters() { return {{"w", parameter}}; }
  void step(std::span<const Shard>) {}
};

TEST_F(Sharded, RefusesWhatItCannotDo) {
  Adam adam;
  EXPECT_THROW(ShardedOptimizer(adam, {.op = ReduceOp::adasum}), InvalidArgument);
  EXPECT_THROW(ShardedOptimizer(adam, {.hook = int8()}), InvalidArgument);
  Unlike unlike;
  EXPECT_THROW(ShardedOptimizer{unlike}, InvalidArgument);
  if (n_ > 1) {
    const Sharding mine = me_ == 0 ? Sharding::state : Sharding::state_and_gradients;
    EXPECT_THROW(ShardedOptimizer(adam, {}, mine), Mismatch);
  }
}

TEST_F(Sharded, ErrorsNameTheShardedOptimizer) {
  const auto refusal = [](const DistributedOptimizerOptions& options) {
    try {
      Adam adam;
      const ShardedOptimizer optimizer(adam, options);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const auto starts = testing::StartsWith("ShardedOptimizer: ");
  EXPECT_THAT(refusal({.backward_passes_per_step = 0}), starts);
  EXPECT_THAT(refusal({.groups = {{"none"}}}), starts);
  if (n_ == 1) return;
  EXPECT_THAT(refusal({.gradient_predivide_factor = me_ == 0 ? 1.0 : 2.0}),
              HasSubstr("of the ShardedOptimizer differ"));
}

TEST_F(Sharded, OutsideItsProcessSetAPartIsTheWhole) {
  const ProcessSet first = add_process_set({0});
  Adam adam;
  ShardedOptimizer optimizer(adam, {.process_set = first});
  Adam alone;
  for (int step = 0; step < 3; ++step) {
    for (Adam* each : {&adam, &alone}) {
      each->zero();
      each->backward(step);
    }
    optimizer.step();
    alone.step();
  }
  EXPECT_EQ(adam.weights(), alone.weights());
  EXPECT_EQ(adam.moments(), alone.moments());
}

}  // namespace
}  // namespace kolo::internal
