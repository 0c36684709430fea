// SPDX-License-Identifier: Apache-2.0
// Commits, restores and broadcasts of a State; without losses, so also in jobs that are not
// elastic.
#include <gmock/gmock.h>

#include <array>
#include <cstdint>
#include <kolo/kolo.hpp>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using kolo::elastic::State;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

enum class Phase : std::uint8_t { warmup, steady };

struct Schedule {
  int step = 0;
  [[nodiscard]] std::string state() const { return std::to_string(step); }
  void load_state(const std::string& text) { step = std::stoi(text); }
};

struct Counter {
  int rejoined = 0;
  void rejoin() { ++rejoined; }
};

/// All kinds of parts, with values that depend on `number`.
struct Objects {
  double rate;
  bool flag;
  Phase phase;
  std::string text;
  std::vector<std::int32_t> numbers;
  kolo::SharedVector<float> shared;
  std::array<double, 3> array;
  std::vector<double> memory;
  std::vector<float> weights;
  Schedule schedule;

  explicit Objects(int number)
      : rate(number),
        flag(number % 2 == 1),
        phase(number % 2 == 1 ? Phase::steady : Phase::warmup),
        text(static_cast<std::size_t>(number), 'x'),
        numbers(static_cast<std::size_t>(number), number),
        shared(static_cast<std::size_t>(2 * number), static_cast<float>(number)),
        array{1.0 * number, 2.0 * number, 3.0 * number},
        memory(4, number),
        weights(5, static_cast<float>(number)),
        schedule{number} {}

  void add_to(State& state) {
    state.add("rate", rate)
        .add("flag", flag)
        .add("phase", phase)
        .add("text", text)
        .add("numbers", numbers)
        .add("shared", shared)
        .add("array", array)
        .add("memory", kolo::TensorView(memory))
        .add("weights", std::vector<kolo::NamedTensor>{{"weights", weights}})
        .add("schedule", schedule);
  }

  void become(int number) {
    const Objects other(number);
    rate = other.rate;
    flag = other.flag;
    phase = other.phase;
    text = other.text;
    numbers = other.numbers;
    shared.assign(other.shared.begin(), other.shared.end());
    array = other.array;
    std::copy(other.memory.begin(), other.memory.end(), memory.begin());
    std::copy(other.weights.begin(), other.weights.end(), weights.begin());
    schedule = other.schedule;
  }

  void expect(int number) const {
    const Objects other(number);
    EXPECT_EQ(rate, other.rate);
    EXPECT_EQ(flag, other.flag);
    EXPECT_EQ(phase, other.phase);
    EXPECT_EQ(text, other.text);
    EXPECT_EQ(numbers, other.numbers);
    EXPECT_TRUE(std::equal(shared.begin(), shared.end(), other.shared.begin(), other.shared.end()));
    EXPECT_EQ(array, other.array);
    EXPECT_EQ(memory, other.memory);
    EXPECT_EQ(weights, other.weights);
    EXPECT_EQ(schedule.step, other.schedule.step);
  }
};

TEST(ElasticState, TakesNoPartsWhileItTrains) {
  const kolo::Session session;
  Objects objects(3);
  State state;
  objects.add_to(state);
  int more = 0;
  const auto add = [&] { state.add("more", more); };
  kolo::elastic::run(state, [&] {
    EXPECT_THROW(add(), kolo::InvalidArgument);
    EXPECT_EQ(state.commits(), 1U);
  });
  add();
}

TEST(ElasticState, RestoresTheLastCommit) {
  const kolo::Session session;
  Objects objects(3);
  State state;
  objects.add_to(state);
  state.commit();
  objects.become(6);
  state.restore();
  objects.expect(3);
  objects.become(2);
  state.commit();
  EXPECT_EQ(state.commits(), 2U);
  objects.become(5);
  state.restore();
  objects.expect(2);
}

TEST(ElasticState, AllRanksBeginAsRank0) {
  const kolo::Session session;
  Objects objects(1 + kolo::rank());
  State state;
  objects.add_to(state);
  Counter counter;
  state.add("counter", counter);
  state.sync();
  objects.expect(1);
  EXPECT_EQ(counter.rejoined, 1);
  EXPECT_EQ(state.commits(), 1U);
}

TEST(ElasticState, AllRanksGetTheNewestCommitWhoeverHasIt) {
  const kolo::Session session;
  Objects objects(2);
  State state;
  objects.add_to(state);
  state.commit();
  objects.become(4);
  state.commit();
  // A process that has just come.
  Objects later(9);
  State other;
  later.add_to(other);
  const bool is_new = kolo::rank() != kolo::size() - 1;
  State& own = is_new ? other : state;
  own.sync();
  (is_new ? later : objects).expect(4);
  EXPECT_EQ(own.commits(), 2U);
}

TEST(ElasticState, SumsOfMetricsStayWithTheirRank) {
  const kolo::Session session;
  kolo::MetricAverage metrics({"loss"});
  metrics.add("loss", kolo::rank());
  State state;
  state.add("metrics", metrics);
  state.sync();
  EXPECT_EQ(metrics.on_this_rank("loss"), kolo::rank());
  metrics.add("loss", 100.0);
  state.restore();
  EXPECT_EQ(metrics.on_this_rank("loss"), kolo::rank());
}

TEST(ElasticState, RefusesNames) {
  const kolo::Session session;
  int number = 0;
  State state;
  state.add("number", number);
  EXPECT_THROW(state.add("number", number), kolo::InvalidArgument);
  EXPECT_THROW(state.add("", number), kolo::InvalidArgument);
  EXPECT_THROW(state.restore(), kolo::InvalidArgument);
}

TEST(ElasticState, RanksWithOtherPartsAreNamed) {
  const kolo::Session session;
  if (kolo::size() < 2) GTEST_SKIP();
  int number = 0;
  State state;
  state.add(kolo::rank() == 1 ? "another" : "number", number);
  try {
    state.sync();
    FAIL() << "no Mismatch";
  } catch (const kolo::Mismatch& error) {
    EXPECT_THAT(error.ranks(), ElementsAre(1));
    EXPECT_THAT(error.what(), HasSubstr("'number' (4 bytes) is on rank 0 only"));
  }
}

TEST(ElasticState, RanksThatCallAnotherFunctionAreNoticed) {
  const kolo::Session session;
  if (kolo::size() < 2) GTEST_SKIP();
  State state;
  EXPECT_THROW(kolo::rank() == 0 ? state.commit() : state.check_membership(), kolo::Mismatch);
  EXPECT_THROW(kolo::rank() == 0 ? state.commit() : state.sync(), kolo::Mismatch);
  EXPECT_EQ(state.commits(), 0U);
  state.commit();
}

TEST(ElasticRun, CallsResetsThenTheTrainingOnce) {
  const kolo::Session session;
  std::vector<std::string> calls;
  State state;
  int number = kolo::rank();
  state.add("number", number);
  state.on_reset([&] { calls.push_back("reset of " + std::to_string(number)); });
  kolo::elastic::run(state, [&] {
    calls.emplace_back("train");
    state.commit();
    state.check_membership();
  });
  EXPECT_THAT(calls, ElementsAre("reset of 0", "train"));
  EXPECT_FALSE(kolo::elastic::is_elastic());
}

TEST(ElasticRun, OptimizersAreMadeBeforeItOrWithinIt) {
  const kolo::Session session;
  struct Model {
    std::vector<float> gradient = std::vector<float>(3, 1.0F);
    int steps = 0;
    std::vector<kolo::NamedTensor> gradients() { return {{"weight", gradient}}; }
    void step() { ++steps; }
  };
  Model before;
  kolo::DistributedOptimizer optimizer(before, {.op = kolo::ReduceOp::sum});
  State state;
  state.add("optimizer", optimizer);
  kolo::elastic::run(state, [&] {
    optimizer.step();
    Model within;
    kolo::DistributedOptimizer other(within, {.op = kolo::ReduceOp::sum});
    other.step();
    EXPECT_THAT(before.gradient, Each(static_cast<float>(kolo::size())));
    EXPECT_THAT(within.gradient, Each(static_cast<float>(kolo::size())));
  });
}

TEST(ElasticRun, AStepThatWasBegunIsForgotten) {
  const kolo::Session session;
  struct Model {
    std::vector<float> gradient = std::vector<float>(3, 1.0F);
    std::vector<kolo::NamedTensor> gradients() { return {{"weight", gradient}}; }
    void step() {}
  };
  Model model;
  kolo::DistributedOptimizer optimizer(model,
                                       {.op = kolo::ReduceOp::sum, .backward_passes_per_step = 2});
  optimizer.ready("weight");
  optimizer.end_pass();
  optimizer.ready("weight");  // begins the reduction
  optimizer.rejoin();
  model.gradient.assign(3, 1.0F);
  optimizer.end_pass();  // the first pass again
  optimizer.step();
  EXPECT_THAT(model.gradient, Each(static_cast<float>(kolo::size())));
}

TEST(ElasticState, NamesThePartOfAnotherSize) {
  const kolo::Session session;
  if (kolo::size() < 2) GTEST_SKIP();
  std::vector<float> weights(static_cast<std::size_t>(3 + kolo::rank()));
  double rate = 0.5;
  State state;
  state.add("rate", rate).add("weights", kolo::TensorView(weights));
  try {
    state.sync();
    FAIL();
  } catch (const kolo::Mismatch& error) {
    EXPECT_THAT(error.what(), HasSubstr("'weights' is f32 [3] on rank 0 and f32 [4] on rank 1"));
    EXPECT_EQ(error.ranks().size(), static_cast<std::size_t>(kolo::size() - 1));
  }
}

TEST(ElasticRun, OtherExceptionsLeaveIt) {
  const kolo::Session session;
  State state;
  EXPECT_THROW(kolo::elastic::run(state, [] { throw std::out_of_range("the data set is empty"); }),
               std::out_of_range);
  EXPECT_THROW(kolo::elastic::run(state, [&] { kolo::elastic::run(state, [] {}); }),
               kolo::InvalidArgument);
  kolo::elastic::run(state, [] {});
}

TEST(ElasticRun, NeedsASession) {
  State state;
  EXPECT_THROW(kolo::elastic::run(state, [] {}), kolo::NotInitialized);
}

}  // namespace
