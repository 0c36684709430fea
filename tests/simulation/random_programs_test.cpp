// SPDX-License-Identifier: Apache-2.0
// Random programs on simulated ranks keep every promise; ./dev simulate runs more of them.
#include <gtest/gtest.h>

#include "campaign.hpp"
#include "generator.hpp"
#include "shrink.hpp"
#include "world.hpp"

namespace kolo::internal::simulation {
namespace {

TEST(RandomPrograms, KeepEveryPromise) {
  const Campaign campaign = run_campaign({.runs = 600}, 1, 1);
  for (const auto& [seed, text] : campaign.failures)
    ADD_FAILURE() << "seed " << seed << ": " << text;
  EXPECT_EQ(campaign.runs, 600U);
  // They are of use only if all of this happens in them.
  EXPECT_GT(campaign.batches, 10000U);
  EXPECT_GT(campaign.errors, 5000U);
  EXPECT_GT(campaign.plans, 100U);
  EXPECT_GT(campaign.replayed, 1000U);
}

TEST(RandomPrograms, ASeedGivesTheSameRunAgain) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const Program program = make_program(seed);
    EXPECT_EQ(to_string(program), to_string(make_program(seed))) << "seed " << seed;
    World once(program);
    once.run();
    World again(program);
    again.run();
    EXPECT_EQ(once.now(), again.now()) << "seed " << seed;
    EXPECT_EQ(once.judge().batches(), again.judge().batches()) << "seed " << seed;
    for (std::size_t rank = 0; rank < once.phases().front().traffic.size(); ++rank)
      EXPECT_EQ(once.phases().front().traffic[rank].bytes(),
                again.phases().front().traffic[rank].bytes())
          << "seed " << seed << ", rank " << rank;
  }
}

/// Rank 0 leaves out an operation for which all others wait, and then waits itself.
TEST(Shrinking, LeavesOnlyWhatBreaksThePromise) {
  Program program;
  program.settings.node_of = {0, 0, 1, 1, 2, 2};
  for (int i = 0; i < 8; ++i) {
    Operation operation{"w" + std::to_string(i)};
    operation.descriptor.type = OperationType::barrier;
    program.operations.push_back(operation);
  }
  for (int rank = 0; rank < 6; ++rank) {
    Script& script = program.scripts.emplace_back();
    for (int i = 0; i < 8; ++i) {
      if (rank != 0 || i != 5) script.push_back({.kind = Act::Kind::submit, .what = i, .group = i});
      script.push_back({.kind = Act::Kind::wait, .group = i});
    }
    script.push_back({.kind = Act::Kind::submit, .what = 6, .group = 8});
    script.push_back({.kind = Act::Kind::wait, .group = 8});
    script.push_back({.kind = Act::Kind::leave});
  }
  const std::optional<Violation> violation = violation_of(program);
  ASSERT_TRUE(violation);
  EXPECT_EQ(violation->promise(), "deadlock");
  const Program least = shrink(program, *violation);
  EXPECT_TRUE(violation_of(least));
  EXPECT_EQ(least.ranks(), 2);
  std::size_t acts = 0;
  for (const Script& script : least.scripts) acts += script.size();
  EXPECT_LE(acts, 9U) << to_string(least);
}

}  // namespace
}  // namespace kolo::internal::simulation
