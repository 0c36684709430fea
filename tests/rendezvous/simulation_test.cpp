// SPDX-License-Identifier: Apache-2.0
// Jobs with random faults keep every promise; ./dev simulate-rendezvous runs more of them.
#include <gtest/gtest.h>

#include "campaign.hpp"
#include "plan.hpp"
#include "world.hpp"

namespace kolo::internal::rendezvous {
namespace {

TEST(SimulatedRendezvous, KeepsEveryPromise) {
  const Campaign campaign = run_campaign({.runs = 6000}, 1, 1);
  for (const auto& [seed, text] : campaign.failures)
    ADD_FAILURE() << "seed " << seed << ": " << text;
  EXPECT_EQ(campaign.runs, 6000U);
  // They are of use only if all of this happens in them.
  EXPECT_GT(campaign.generations, 6500U);
  EXPECT_GT(campaign.results, 100'000U);
  EXPECT_GT(campaign.lost, 1000U);
  EXPECT_GT(campaign.failed, 200U);
  EXPECT_LT(campaign.failed, 2000U);
  EXPECT_GT(campaign.largest, 100U);
}

TEST(SimulatedRendezvous, ASeedGivesTheSameRunAgain) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const Plan plan = make_plan(seed);
    World once(plan);
    once.run();
    World again(plan);
    again.run();
    EXPECT_EQ(once.now(), again.now()) << "seed " << seed;
    EXPECT_EQ(once.events(), again.events()) << "seed " << seed;
  }
}

/// Without a fault, nothing but the session and its end.
TEST(SimulatedRendezvous, WithoutFaultsThereIsOneGeneration) {
  for (const int size : {2, 7, 1000}) {
    Plan plan{.slots = {size / 2, size - size / 2}, .commits = 2};
    plan.options.np = plan.options.min_np = plan.options.max_np = size;
    plan.step = plan.delay = std::chrono::milliseconds(1);
    World world(plan);
    ASSERT_NO_THROW(world.run()) << size;
    EXPECT_EQ(world.judge().generations(), 1U);
    EXPECT_EQ(world.judge().status(), 0);
    EXPECT_EQ(world.judge().lost(), 0U);
    EXPECT_EQ(world.judge().largest(), static_cast<std::uint64_t>(size));
  }
}

/// An elastic job of four on two hosts that loses one process and gets it back.
TEST(SimulatedRendezvous, ALostProcessIsStartedAgainAfterTheCooldown) {
  Plan plan{.slots = {2, 2}, .commits = 40};
  plan.options.elastic = true;
  plan.options.np = plan.options.max_np = 4;
  plan.options.min_np = 2;
  plan.step = std::chrono::milliseconds(1000);
  plan.delay = std::chrono::milliseconds(1);
  plan.faults = {{.kind = FaultKind::kill, .at = std::chrono::seconds(3)}};
  World world(plan);
  ASSERT_NO_THROW(world.run());
  // The four, the three that are left, and four again.
  EXPECT_EQ(world.judge().generations(), 3U);
  EXPECT_EQ(world.judge().status(), 0);
  EXPECT_GT(world.now(), plan.faults.front().at + plan.options.min_cooldown);
}

}  // namespace
}  // namespace kolo::internal::rendezvous
