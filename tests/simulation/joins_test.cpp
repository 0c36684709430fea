// SPDX-License-Identifier: Apache-2.0
// Joined ranks whose wait ends for another reason.
#include <gtest/gtest.h>

#include "shrink.hpp"
#include "world.hpp"

namespace kolo::internal::simulation {
namespace {

/// Ranks on one host, and operations of a process set that all but the last are in.
struct Joined {
  explicit Joined(int ranks) {
    program.settings.node_of.assign(static_cast<std::size_t>(ranks), 0);
    program.sets.push_back(RankSet::range(0, ranks - 2));
    program.scripts.resize(static_cast<std::size_t>(ranks));
    Operation set;
    set.set = 1;
    set.descriptor.type = OperationType::add_process_set;
    set.descriptor.ranks = program.sets.front();
    add(set);
    Operation end;
    end.descriptor.type = OperationType::join;
    add(end);
    Operation sum{"a", 1};
    sum.descriptor.type = OperationType::allreduce;
    sum.descriptor.tensors = {{DType::f32, Shape(3)}};
    add(sum);
  }

  static constexpr int make_set = 0;
  static constexpr int join = 1;
  static constexpr int of_set = 2;

  void add(const Operation& operation) { program.operations.push_back(operation); }
  void submit(int rank, int what) {
    program.scripts[static_cast<std::size_t>(rank)].push_back(
        {.kind = Act::Kind::submit, .what = what});
  }
  void wait(int rank) {
    program.scripts[static_cast<std::size_t>(rank)].push_back({.kind = Act::Kind::wait});
  }
  void compute(int rank) {
    program.scripts[static_cast<std::size_t>(rank)].push_back(
        {.kind = Act::Kind::compute, .time = std::chrono::milliseconds(1)});
  }
  void leave(int rank) {
    program.scripts[static_cast<std::size_t>(rank)].push_back({.kind = Act::Kind::leave});
  }

  Program program;
};

/// A join fails when a rank leaves. The others go on without who had joined, in sets that the
/// leaver was not in; so whatever it submits must fail too, and none of it be left pending.
TEST(Joins, WhoseJoinFailedIsToldSoInEverySet) {
  for (int ranks = 3; ranks <= 5; ++ranks) {
    for (int joining = 0; joining < ranks - 1; ++joining) {
      Joined joined(ranks);
      for (int rank = 0; rank < ranks; ++rank) {
        joined.submit(rank, Joined::make_set);
        joined.wait(rank);
        if (rank == joining) joined.submit(rank, Joined::join);
        joined.wait(rank);
        if (rank == ranks - 1) {
          joined.compute(rank);
          joined.leave(rank);
          continue;
        }
        if (rank != joining) joined.compute(rank);
        joined.compute(rank);
        joined.submit(rank, Joined::of_set);
        joined.wait(rank);  // nobody leaves before that: it would be answered by the departure
        for (int i = 0; i < (rank == joining ? 40 : 20); ++i) joined.compute(rank);
        joined.leave(rank);
      }
      World world(joined.program);
      EXPECT_NO_THROW(world.run()) << to_string(joined.program);
      EXPECT_EQ(world.judge().batches(), 1U);
      EXPECT_EQ(world.judge().failures(), 2U);  // the join, and the operation of that rank
      std::uint64_t answers = 0;
      for (const Script& script : joined.program.scripts)
        for (const Act& act : script)
          if (act.kind == Act::Kind::submit) ++answers;
      EXPECT_EQ(world.judge().answers(), answers);
    }
  }
}

}  // namespace
}  // namespace kolo::internal::simulation
