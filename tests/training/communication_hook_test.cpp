// SPDX-License-Identifier: Apache-2.0
// The interface of communication hooks, with kolo::DistributedOptimizer for a custom optimizer.
#include "kolo/communication_hook.hpp"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "../session/fixture.hpp"
#include "../support/halves_hook.hpp"
#include "kolo/optimizer.hpp"
#include "training/optimizer/pass_reducer.hpp"

namespace kolo::internal {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using Place = HalvesHook::Place;

struct TwoFloats {
  std::vector<float> a = std::vector<float>(7);
  std::vector<float> b = std::vector<float>(4);
  std::vector<std::int32_t> counts = std::vector<std::int32_t>(2);
  int steps = 0;

  std::vector<NamedTensor> gradients() { return {{"a", a}, {"b", b}, {"counts", counts}}; }
  void step() { ++steps; }
  void fill(double value) {
    a.assign(a.size(), static_cast<float>(value));
    b.assign(b.size(), static_cast<float>(2.0 * value));
    counts.assign(counts.size(), static_cast<std::int32_t>(12.0 * value));
  }
};

class Hooks : public WithSession {
 protected:
  void expect_reduced(double expected) const {
    EXPECT_THAT(model_.a, Each(static_cast<float>(expected)));
    EXPECT_THAT(model_.b, Each(static_cast<float>(2.0 * expected)));
    EXPECT_THAT(model_.counts, Each(static_cast<std::int32_t>(12.0 * expected)));
  }
  void step(DistributedOptimizer<TwoFloats>& optimizer) {
    model_.fill(me_ + 1.0);
    optimizer.step();
  }

  const double mean_ = (n_ + 1) / 2.0;
  TwoFloats model_;
  std::shared_ptr<HalvesHook> hook_ = std::make_shared<HalvesHook>();
};

TEST_F(Hooks, ReduceWhatTheyHandle) {
  DistributedOptimizer optimizer(model_, {.hook = hook_});
  for (int i = 1; i <= 5; ++i) {
    model_.fill(me_ + 1.0);
    if ((i + me_) % 2 == 0) optimizer.ready("b");
    if (i % 3 == 0) optimizer.ready("counts");
    if (i % 3 == 0) optimizer.ready("a");
    optimizer.step();
    expect_reduced(mean_);
    EXPECT_EQ(hook_->reduced.count(".a"), n_ == 1 ? 0U : static_cast<unsigned>(i));
    EXPECT_EQ(hook_->reduced.size(), n_ == 1 ? 0U : 2U * static_cast<unsigned>(i));
  }
}

TEST_F(Hooks, GetTheScales) {
  DistributedOptimizer sum(model_, {.op = ReduceOp::sum, .hook = std::make_shared<HalvesHook>()});
  step(sum);
  expect_reduced(mean_ * n_);
  DistributedOptimizer split(
      model_, {.gradient_predivide_factor = 2.0, .hook = std::make_shared<HalvesHook>()});
  step(split);
  expect_reduced(mean_);
  DistributedOptimizer passes(model_, {.backward_passes_per_step = 2,
                                       .accumulation = Accumulation::mean,
                                       .hook = std::make_shared<HalvesHook>()});
  for (const int made : {2, 1, 2}) {
    for (int pass = 1; pass < made; ++pass) passes.end_pass();
    model_.fill(made * (me_ + 1.0));
    passes.step();
    expect_reduced(mean_);
  }
}

TEST_F(Hooks, ReduceAGroupAtOnce) {
  DistributedOptimizer optimizer(model_, {.groups = {{"b", "a"}}, .hook = hook_});
  for (int i = 0; i < 3; ++i) {
    model_.fill(me_ + 1.0);
    optimizer.ready("a");
    optimizer.step();
    expect_reduced(mean_);
  }
  EXPECT_EQ(hook_->reduced.count("(group 0)"), n_ == 1 ? 0U : 3U);
}

TEST_F(Hooks, DoNotReduceAGroupThatHasSomethingElse) {
  DistributedOptimizer optimizer(model_, {.groups = {{"a", "counts"}}, .hook = hook_});
  step(optimizer);
  expect_reduced(mean_);
  EXPECT_EQ(hook_->reduced.size(), n_ == 1 ? 0U : 1U);
}

TEST_F(Hooks, OfAProcessSetUseIt) {
  const int half = std::max(1, n_ / 2);
  std::vector<int> low(static_cast<std::size_t>(half));
  std::iota(low.begin(), low.end(), 0);
  std::vector<int> high(static_cast<std::size_t>(n_ - half));
  std::iota(high.begin(), high.end(), half);
  const ProcessSet first = add_process_set(low);
  const ProcessSet second = high.empty() ? ProcessSet() : add_process_set(high);
  const ProcessSet mine = me_ < half ? first : second;
  DistributedOptimizer optimizer(model_, {.hook = hook_, .process_set = mine});
  double sum = 0.0;
  for (const int rank : mine.ranks()) sum += rank + 1.0;
  for (int i = 0; i < 3; ++i) {
    step(optimizer);
    expect_reduced(sum / mine.size());
  }
  // On the others, nothing happens.
  DistributedOptimizer outside(model_,
                               {.hook = std::make_shared<HalvesHook>(), .process_set = first});
  step(outside);
  if (me_ >= half) expect_reduced(me_ + 1.0);
}

TEST_F(Hooks, ThatThrowOnOneRankFailOnAll) {
  for (const Place place : {Place::reduce, Place::first, Place::second, Place::last})
    for (const std::string bucket : {"", ".b"}) {
      const auto hook = std::make_shared<HalvesHook>();
      DistributedOptimizer optimizer(model_, {.hook = hook});
      for (int i = 0; i < 3; ++i) {
        hook->throws = i == 1 && me_ == last_ ? place : Place::nowhere;
        hook->throws_for = bucket;
        model_.fill(me_ + 1.0);
        if (n_ == 1 || i != 1) {
          if (me_ == 0) optimizer.ready("a");
          optimizer.step();
          expect_reduced(mean_);
          continue;
        }
        const int steps = model_.steps;
        const auto error = thrown_by<HookFailed>([&] {
          if (me_ == 0) optimizer.ready("a");
          optimizer.step();
        });
        EXPECT_THAT(error.ranks(), ElementsAre(last_));
        EXPECT_THAT(error.what(), HasSubstr(me_ == last_ ? "the planted error" : "has thrown on"));
        EXPECT_TRUE(me_ != last_ || bucket.empty() || error.tensor() == "b");
        EXPECT_EQ(model_.steps, steps);
      }
      expect_usable();
    }
}

TEST_F(Hooks, ThatThrowOnAllRanksNameTheFirst) {
  hook_->throws = Place::second;
  DistributedOptimizer optimizer(model_, {.hook = hook_});
  if (n_ == 1) return step(optimizer);
  const auto error = thrown_by<HookFailed>([&] { step(optimizer); });
  EXPECT_THAT(error.ranks(), ElementsAre(me_));
  hook_->throws = Place::nowhere;
  step(optimizer);
  expect_reduced(mean_);
}

/// Has nothing to send, which only this rank could know.
class SilentHook : public HalvesHook {
 public:
  HookStages reduce(GradientBucket /*bucket*/) override {
    return HookStages().then([] {});
  }
};

TEST_F(Hooks, WithoutAnOperationAreRefused) {
  DistributedOptimizer optimizer(model_, {.hook = std::make_shared<SilentHook>()});
  if (n_ == 1) return step(optimizer);
  const auto error = thrown_by<HookFailed>([&] { step(optimizer); });
  EXPECT_THAT(error.what(), HasSubstr("no stage that submits"));
  expect_usable();
}

TEST_F(Hooks, AreAgreedAtConstruction) {
  if (n_ == 1) GTEST_SKIP() << "one rank cannot disagree";
  const auto error = thrown_by<Mismatch>(
      [&] { DistributedOptimizer optimizer(model_, {.hook = me_ == 0 ? hook_ : nullptr}); });
  EXPECT_THAT(error.what(), HasSubstr("hook halves"));
  EXPECT_THAT(error.what(), HasSubstr("hook none"));
}

TEST_F(Hooks, BelongToOneOptimizer) {
  {
    DistributedOptimizer optimizer(model_, {.hook = hook_});
    const auto error =
        thrown_by<InvalidArgument>([&] { DistributedOptimizer other(model_, {.hook = hook_}); });
    EXPECT_THAT(error.what(), HasSubstr("halves"));
    DistributedOptimizer moved(std::move(optimizer));
    step(moved);
  }
  DistributedOptimizer next(model_, {.hook = hook_});
  step(next);
  expect_reduced(mean_);
}

TEST_F(Hooks, DoNotGoWithAdasum) {
  EXPECT_THROW(DistributedOptimizer(model_, {.op = ReduceOp::adasum, .hook = hook_}),
               InvalidArgument);
}

TEST_F(Hooks, EndADiscardedStep) {
  DistributedOptimizer optimizer(model_, {.hook = hook_});
  for (int i = 0; i < 3; ++i) {
    model_.fill(1000.0);
    if (me_ == i % n_) optimizer.ready("a");
    optimizer.discard();
    static_cast<void>(optimizer.reduce());  // dropped
    step(optimizer);
    expect_reduced(mean_);
  }
}

TEST_F(Hooks, OfRanksInDifferentStepsAreAMismatch) {
  if (n_ == 1) GTEST_SKIP() << "one rank cannot disagree";
  struct Floats {
    std::vector<float> a = std::vector<float>(3);
    std::vector<NamedTensor> gradients() { return {{"a", a}}; }
    void step() {}
  } model;
  DistributedOptimizer optimizer(model, {.hook = hook_});
  ReducedGradients reduced = optimizer.reduce();
  if (me_ != last_) optimizer.step(std::move(reduced));
  EXPECT_THROW(static_cast<void>(optimizer.reduce()), Mismatch);
  expect_usable();
}

// All operations of "a" are submitted. What they sum must not reach the next gradients.
TEST_F(Hooks, CutByAJoinLeaveTheNextGradientsAlone) {
  if (n_ == 1) GTEST_SKIP() << "one rank has no hook";
  for (const auto& hook : {std::shared_ptr<CommunicationHook>(hook_), int8({.min_elements = 1})}) {
    DistributedOptimizer optimizer(model_, {.hook = hook});
    model_.fill(100.0);
    for (const char* name : {"a", "b"}) {
      optimizer.ready(name);
      barrier({.name = "the operations before are done"});
    }
    join();
    model_.fill(1.0);
    optimizer.ready("counts");
    optimizer.step();
    EXPECT_THAT(model_.a, Each(testing::FloatNear(1.0F, 1e-5F)));
    EXPECT_THAT(model_.b, Each(testing::FloatNear(2.0F, 1e-5F)));
  }
}

/// Two gradients. Backward uses the first.
struct TwoGradients : GradientStorage {
  std::array<std::vector<float>, 2> gradients{std::vector<float>(4), std::vector<float>(4)};
  [[nodiscard]] int content(std::size_t slot) const override { return slot == 0 ? 1 : 0; }
  TensorView open(std::size_t slot, double /*factor*/) override { return gradients[slot]; }
};

TEST_F(Hooks, OfAPassThatFailsEndOnAllRanks) {
  if (n_ == 1) GTEST_SKIP() << "one rank has no hook";
  TwoGradients storage;
  PassReducer reducer(storage, {.hook = hook_}, /*agrees=*/true);
  reducer.add("used", std::nullopt);
  reducer.add("unused", std::nullopt);
  for (const bool first_fails : {true, false}) {
    for (const bool last_fails : {true, false}) {
      storage.gradients[0].assign(4, static_cast<float>(me_ + 1.0));
      reducer.begin(/*reducing=*/true);
      // If backward throws on two ranks, one has begun a reduction, and the other has not.
      if (me_ != last_ || !first_fails) reducer.ready(0);
      const bool fails = (me_ == 0 && first_fails) || (me_ == last_ && last_fails);
      if (fails) {
        reducer.fail_pass();
      } else {
        PassReducer::end_together({&reducer});
      }
      // A failed rank answers what another failed rank has refused once it settles. One alone has
      // nothing to answer, so no rank waits for its next pass.
      if (first_fails && last_fails) reducer.settle();
      barrier({.name = "no rank waits for the next pass"});
      reducer.settle();
      if (!first_fails && !last_fails) {
        reducer.rethrow();
        EXPECT_THAT(storage.gradients[0], Each(static_cast<float>(mean_)));
      } else if (!fails) {
        EXPECT_THROW(reducer.rethrow(), BackwardFailed);
      }
      reducer.forget_passes();
    }
  }
  expect_usable();
}

TEST_F(Hooks, ContinueWhenRanksHaveJoined) {
  DistributedOptimizer optimizer(model_, {.hook = hook_});
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (int i = 0; i <= me_; ++i) {
      step(optimizer);
      double sum = 0.0;
      for (int rank = i; rank < n_; ++rank) sum += rank + 1.0;
      EXPECT_THAT(model_.a, Each(static_cast<float>(sum / n_)));
    }
    EXPECT_EQ(join(), last_);
  }
}

// The ranks have submitted the first operation of "a" only.
TEST_F(Hooks, CutByAJoinAreDropped) {
  if (n_ == 1) GTEST_SKIP() << "one rank has no hook";
  DistributedOptimizer optimizer(model_, {.hook = hook_});
  for (const bool is_discarded : {false, true}) {
    model_.fill(1.0);
    optimizer.ready("a");
    join();
    if (is_discarded) {
      optimizer.discard();
    } else {
      EXPECT_THROW(optimizer.step(), InvalidArgument);
    }
    for (int i = 0; i < 2; ++i) {
      step(optimizer);
      expect_reduced(mean_);
    }
  }
}

}  // namespace
}  // namespace kolo::internal
