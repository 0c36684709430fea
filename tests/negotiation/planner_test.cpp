// SPDX-License-Identifier: Apache-2.0
// The search of the root for repetitions in its log.
#include "negotiation/replay/planner.hpp"

#include <gtest/gtest.h>

namespace kolo::internal::negotiation {
namespace {

UncachedOperation named(const std::string& name, std::int64_t step = 0) {
  UncachedOperation uncached{{.name = name}, {}};
  uncached.descriptor.step = step;
  return uncached;
}

UncachedOperation numbered(std::uint64_t number, ReduceOp op = ReduceOp::sum) {
  UncachedOperation uncached{{.number = number}, {}};
  uncached.descriptor.op = op;
  return uncached;
}

class PlannerTest : public testing::Test {
 protected:
  void see(const std::vector<UncachedOperation>& batch) {
    planner_.see({.uncached = batch}, cache_, now_);
  }
  /// The plan as text: names or numbers, batches in brackets; "" for none.
  [[nodiscard]] std::string plan() const {
    std::string text;
    if (const auto found = planner_.plan(1)) {
      for (const auto& batch : found->batches) {
        text += '[';
        for (const PlanItem& item : batch) text += to_string(item.key) + ' ';
        text.back() = ']';
      }
    }
    return text;
  }

  TimePoint now_{};
  ResponseCache cache_{};
  Planner planner_{};
};

TEST_F(PlannerTest, ACycleThatComesTwiceIsAPlan) {
  see({named("a"), named("b")});
  EXPECT_EQ(plan(), "");
  see({named("c")});
  EXPECT_EQ(plan(), "");
  see({named("a")});
  see({named("b")});
  EXPECT_EQ(plan(), "");
  see({named("c")});
  EXPECT_EQ(plan(), R"(["a"]["b"]["c"])");  // as the batches were the last time
}

TEST_F(PlannerTest, SlotsStandForWhatTheyAre) {
  ASSERT_TRUE(cache_.enter(0, {.name = "x"}, {}));
  BatchEntry batch;
  batch.slots.insert(0);
  planner_.see(batch, cache_, now_);
  planner_.see(batch, cache_, now_);
  EXPECT_EQ(plan(), R"(["x"])");
}

TEST_F(PlannerTest, ItMayBeginAnywhereInTheCycle) {
  for (int i = 0; i < 2; ++i) {
    see({named("c")});
    see({named("a"), named("b")});
  }
  EXPECT_EQ(plan(), R"(["c"]["a" "b"])");
}

TEST_F(PlannerTest, WhatDiffersIsNoPlan) {
  see({named("a")});
  see({named("b")});
  see({named("a")});
  see({named("c")});
  see({named("a")});
  see({named("b")});
  EXPECT_EQ(plan(), "");
  planner_.interrupt();
  UncachedOperation other = named("a");
  see({named("a")});
  other.descriptor.prescale = 2;
  see({other});
  EXPECT_EQ(plan(), "");
  see({other});
  EXPECT_EQ(plan(), R"(["a"])");
}

TEST_F(PlannerTest, AnythingBetweenBeginsAfresh) {
  see({named("a")});
  planner_.interrupt();
  see({named("a")});
  EXPECT_EQ(plan(), "");
}

TEST_F(PlannerTest, ABatchOfTwoCyclesBeginsAfresh) {
  see({named("a")});
  see({named("b")});
  see({named("c"), named("a")});
  see({named("b")});
  EXPECT_EQ(plan(), "");
}

TEST_F(PlannerTest, APlanSaysHowLongAPassTook) {
  using namespace std::chrono_literals;
  see({named("a")});
  now_ += 3ms;
  see({named("b")});
  now_ += 30ms;
  see({named("a")});
  now_ += 5ms;
  see({named("b")});
  EXPECT_EQ(planner_.plan(1)->usual, 35ms);
}

TEST_F(PlannerTest, StepsMayGrow) {
  see({named("a", 3), named("b", 0)});
  see({named("a", 4), named("b", 0)});
  const auto found = planner_.plan(6);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->epoch, 6U);
  const PlanItem& a = found->batches.front().front();
  EXPECT_EQ(a.descriptor.step, 5);
  EXPECT_EQ(a.step_stride, 1);
  EXPECT_EQ(found->batches.front().back().step_stride, 0);
}

TEST_F(PlannerTest, OperationsWithoutANameAreComparedInTheirOrder) {
  see({numbered(4), numbered(5, ReduceOp::max)});
  see({numbered(6), numbered(7, ReduceOp::max)});
  EXPECT_EQ(plan(), "[#8 #9]");
  EXPECT_EQ(planner_.plan(1)->batches.front().front().number_stride, 2U);
  planner_.interrupt();
  see({numbered(8), named("a"), numbered(9, ReduceOp::max)});
  see({numbered(10, ReduceOp::max), named("a"), numbered(11)});
  EXPECT_EQ(plan(), "");
}

TEST_F(PlannerTest, ItMayEndAndBeginWithWhatHasNoName) {
  for (std::uint64_t i = 0; i < 4; ++i) {
    see({numbered(2 * i), named("a")});
    see({numbered(2 * i + 1, ReduceOp::max)});
  }
  EXPECT_EQ(plan(), R"([#8 "a"][#9])");
}

TEST_F(PlannerTest, AfterPlansOfLittleUseItWaitsLonger) {
  const auto cycles_needed = [&] {
    for (int cycles = 1;; ++cycles) {
      see({named("a")});
      if (plan() != "") return cycles;
    }
  };
  EXPECT_EQ(cycles_needed(), 2);
  planner_.ended(1);
  EXPECT_EQ(cycles_needed(), 4);
  planner_.ended(1);
  EXPECT_EQ(cycles_needed(), 8);
  planner_.ended(1000);
  EXPECT_EQ(cycles_needed(), 4);
  for (int i = 0; i < 20; ++i) planner_.ended(0);
  EXPECT_EQ(cycles_needed(), 1024);
}

}  // namespace
}  // namespace kolo::internal::negotiation
