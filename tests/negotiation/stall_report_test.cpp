// SPDX-License-Identifier: Apache-2.0
// Messages about operations that do not complete, and about ranks that wait for each other.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "negotiation/protocol/tally.hpp"
#include "negotiation/wire/codec.hpp"
#include "simulation.hpp"

namespace kolo::internal::test {
namespace {

using namespace std::chrono_literals;
using negotiation::RankStatus;
using testing::EndsWith;
using testing::HasSubstr;

/// A rank that waits for these and nothing else.
RankStatus waiting(int rank, const std::vector<std::string>& names) {
  RankStatus status{.rank = rank,
                    .process = 100 + rank,
                    .state = ProcessState::alive,
                    .submitted = true,
                    .waits = true,
                    .blocked = true,
                    .pending = static_cast<int>(names.size())};
  for (const std::string& name : names)
    status.operations.push_back({{.name = name}, OperationType::allreduce, 10s});
  return status;
}

RankStatus outside(int rank) {
  return {.rank = rank,
          .process = 100 + rank,
          .state = ProcessState::alive,
          .idle = 75s,
          .submitted = true};
}

/// Rank 0 speaks for a host of all ranks.
Simulation::Options one_host(int ranks, std::vector<RankStatus>& statuses) {
  return {.node_of = std::vector<int>(static_cast<std::size_t>(ranks), 0),
          .seed = 7,
          .stall_warning = 10s,
          .stall_shutdown = 60s,
          .statuses = [&statuses](int rank) {
            return rank == 0 ? statuses : std::vector<RankStatus>{};
          }};
}

/// All but `missing` submit, and the time of the warning passes.
void let_it_be_late(Simulation& simulation, int missing, const std::string& name) {
  for (int rank = 0; rank < simulation.ranks(); ++rank)
    if (rank != missing) simulation.submit(rank, {.name = name}, floats(1));
  simulation.run();
  simulation.pass_time(11s);
  simulation.pass_time(1s);
}

TEST(StallReport, SaysWhatTheMissingRankDoesInstead) {
  std::vector<RankStatus> statuses{waiting(0, {"conv1.weight"}), waiting(1, {"conv1.weight"}),
                                   waiting(2, {"conv1.weigth"})};
  statuses[2].blocked = false;  // another of its threads computes: that is no deadlock
  Simulation simulation(one_host(3, statuses));
  let_it_be_late(simulation, 2, "conv1.weight");
  ASSERT_EQ(simulation.reports(0).size(), 1U);
  EXPECT_THAT(simulation.reports(0)[0],
              HasSubstr("allreduce \"conv1.weight\" has waited 12.0 s: submitted by ranks 0-1, "
                        "missing rank 2\n  rank 2: waiting in Kolo for allreduce \"conv1.weigth\" "
                        "(10.0 s): is \"conv1.weigth\" meant to be \"conv1.weight\"?"));
}

TEST(StallReport, SaysWhoIsOutsideKolo) {
  std::vector<RankStatus> statuses{waiting(0, {"x"}), outside(1), outside(2)};
  Simulation simulation(one_host(3, statuses));
  simulation.submit(0, {.name = "x"}, floats(1));
  simulation.run();
  simulation.pass_time(11s);
  simulation.pass_time(1s);
  ASSERT_EQ(simulation.reports(0).size(), 1U);
  EXPECT_THAT(
      simulation.reports(0)[0],
      EndsWith("missing ranks 1-2\n  ranks 1-2: outside Kolo, and nothing submitted for 75.0 s"));
}

TEST(StallReport, IsMadeOnceUnlessSomethingChanges) {
  std::vector<RankStatus> statuses{waiting(0, {"x"}), outside(1)};
  Simulation simulation(one_host(2, statuses));
  let_it_be_late(simulation, 1, "x");
  EXPECT_EQ(simulation.reports(0).size(), 1U);
  for (int i = 0; i < 2; ++i) {
    statuses[1].idle += 11s;
    simulation.pass_time(11s);
    simulation.pass_time(1s);
  }
  EXPECT_EQ(simulation.reports(0).size(), 1U);
  statuses[1].state = ProcessState::stopped;
  simulation.pass_time(11s);
  simulation.pass_time(1s);
  ASSERT_EQ(simulation.reports(0).size(), 2U);
  EXPECT_THAT(simulation.reports(0)[1], HasSubstr("rank 1: stopped (state T); process 101"));
}

TEST(StallReport, TellsTogetherWhatWaitsForTheSameRanks) {
  std::vector<RankStatus> statuses{waiting(0, {"a", "b"}), outside(1)};
  Simulation simulation(one_host(2, statuses));
  for (const char* name : {"a", "b", "c", "d", "e"})
    simulation.submit(0, {.name = name}, floats(1));
  simulation.run();
  simulation.pass_time(11s);
  simulation.pass_time(1s);
  ASSERT_EQ(simulation.reports(0).size(), 1U);
  EXPECT_THAT(simulation.reports(0)[0], HasSubstr("; 4 more wait for the same ranks: allreduce "));
  EXPECT_THAT(simulation.reports(0)[0], HasSubstr(", ...\n"));
}

TEST(StallReport, ADisagreementThatIsKnownAlreadyIsToldToo) {
  std::vector<RankStatus> statuses{waiting(0, {"x"}), waiting(1, {"x"}), outside(2)};
  Simulation simulation(one_host(3, statuses));
  simulation.submit(0, {.name = "x"}, floats(4));
  simulation.submit(1, {.name = "x"}, floats(5));
  simulation.run();
  simulation.pass_time(11s);
  simulation.pass_time(1s);
  ASSERT_EQ(simulation.reports(0).size(), 1U);
  EXPECT_THAT(simulation.reports(0)[0],
              HasSubstr("disagree already: shape [4] on rank 0, [5] on rank 1"));
}

TEST(StallReport, StandsInTheErrorOnAllRanks) {
  std::vector<RankStatus> statuses{waiting(0, {"x"}), outside(1), waiting(2, {"x"})};
  statuses[1].state = ProcessState::traced;
  Simulation simulation(one_host(3, statuses));
  let_it_be_late(simulation, 1, "x");
  simulation.pass_time(60s);
  simulation.pass_time(1s);
  for (const int rank : {0, 2}) {
    const auto& failure = simulation.outcomes(rank).back().failure;
    ASSERT_TRUE(failure);
    EXPECT_EQ(failure->kind, FailureKind::stalled);
    EXPECT_THAT(failure->message, HasSubstr("not submitted by rank 1"));
    EXPECT_THAT(failure->message, HasSubstr("rank 1: held by a debugger (state t)"));
    EXPECT_EQ(failure->ranks, RankSet::of(1));
  }
}

TEST(StallReport, ARankThatWaitsForAStoppedOneIsNotBlamed) {
  std::vector<RankStatus> statuses{waiting(0, {"x"}), outside(1), waiting(2, {"y"})};
  statuses[1].state = ProcessState::stopped;
  Simulation simulation(one_host(3, statuses));
  simulation.submit(0, {.name = "x"}, floats(1));
  simulation.run();
  simulation.pass_time(60s);
  simulation.pass_time(1s);
  const auto& failure = simulation.outcomes(0).back().failure;
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->ranks, RankSet::of(1));
  EXPECT_THAT(failure->message, HasSubstr("not submitted by rank 1 within"));
  EXPECT_THAT(failure->message, HasSubstr("rank 2: waiting in Kolo for allreduce \"y\""));
}

TEST(StallReport, ComesFromEveryHost) {
  // Ranks 0 and 2 lead. Rank 3 is stopped, and so is rank 4, which leads and says nothing.
  const std::vector<RankStatus> second{waiting(2, {"x"}),
                                       {.rank = 3, .process = 103, .state = ProcessState::stopped}};
  Simulation simulation(
      {.node_of = even_nodes(6, 2), .seed = 3, .stall_warning = 10s, .statuses = [&](int rank) {
         return rank == 2 ? second : std::vector<RankStatus>{};
       }});
  for (const int rank : {0, 1, 2}) simulation.submit(rank, {.name = "x"}, floats(1));
  simulation.run();
  simulation.pass_time(11s);
  simulation.pass_time(1s);
  ASSERT_EQ(simulation.reports(0).size(), 1U);
  EXPECT_THAT(simulation.reports(0)[0], HasSubstr("missing ranks 3-5"));
  EXPECT_THAT(simulation.reports(0)[0], HasSubstr("\n  rank 3: stopped (state T); process 103"));
  EXPECT_THAT(simulation.reports(0)[0], HasSubstr("\n  ranks 4-5: no response"));
}

TEST(StallReport, AJoinIsLateWhenTheOthersDoNothing) {
  std::vector<RankStatus> statuses{waiting(0, {}), outside(1), outside(2)};
  Simulation simulation(one_host(3, statuses));
  simulation.join(0);
  simulation.run();
  // The others work on.
  for (int i = 0; i < 3; ++i) {
    simulation.pass_time(6s);
    for (const int rank : {1, 2}) simulation.submit(rank, {.name = "x"}, floats(1));
    simulation.run();
  }
  simulation.pass_time(1s);
  EXPECT_TRUE(simulation.reports(0).empty()) << simulation.reports(0).front();
  simulation.pass_time(11s);
  simulation.pass_time(1s);
  ASSERT_EQ(simulation.reports(0).size(), 1U);
  EXPECT_THAT(simulation.reports(0)[0], HasSubstr("join has waited"));
  EXPECT_THAT(simulation.reports(0)[0], HasSubstr("missing ranks 1-2"));
  simulation.pass_time(60s);
  simulation.pass_time(1s);
  ASSERT_TRUE(simulation.outcomes(0).back().failure);
  EXPECT_EQ(simulation.outcomes(0).back().failure->kind, FailureKind::stalled);
}

TEST(StallReport, NoJoinIsLateOnceTheWorldIsBroken) {
  std::vector<RankStatus> statuses{outside(0), outside(1), outside(2)};
  Simulation simulation(one_host(3, statuses));
  simulation.join(1);
  simulation.run();
  simulation.leave(2);
  simulation.run();
  ASSERT_TRUE(simulation.outcomes(1).at(0).failure);  // the join has its answer
  const std::int64_t sent = simulation.bytes_sent();
  for (int second = 0; second < 100; ++second) simulation.pass_time(1s);
  EXPECT_THAT(simulation.reports(0), testing::IsEmpty());
  EXPECT_EQ(simulation.bytes_sent(), sent);
}

TEST(StallReport, StatusesAreTheSameAfterTheWire) {
  RankStatus status = waiting(3, {"a", "b"});
  status.batch = "batch 7";
  status.awaits = "to deposit piece 3";
  status.awaited = RankSet::range(1, 2);
  status.ended = Failure{FailureKind::stalled, "a reason", "x", RankSet::of(9)};
  const RankStatus got = negotiation::decode_status(negotiation::encode_status(status));
  EXPECT_EQ(got.rank, 3);
  EXPECT_EQ(got.process, 103);
  EXPECT_EQ(got.state, ProcessState::alive);
  EXPECT_TRUE(got.submitted && got.waits && got.blocked && got.ended);
  ASSERT_EQ(got.operations.size(), 2U);
  EXPECT_EQ(got.operations[1].key.name, "b");
  EXPECT_EQ(got.operations[1].waited, 10s);
  EXPECT_EQ(got.batch + got.awaits, status.batch + status.awaits);
  EXPECT_EQ(got.awaited, status.awaited);
  EXPECT_EQ(got.ended, status.ended);
  const std::vector<std::byte> damaged(40, std::byte{0xff});
  EXPECT_THROW((void)negotiation::decode_status(damaged), negotiation::ProtocolError);
}

/// The ranks found, and the report.
std::pair<RankSet, std::string> deadlock_of(const std::vector<RankStatus>& all,
                                            const RankSet& world, const RankSet& set = {}) {
  negotiation::Statuses statuses;
  for (const RankStatus& status : all) statuses.emplace(status.rank, status);
  const auto found =
      negotiation::find_deadlock(statuses, [&](SetId id) { return id == world_set ? world : set; });
  if (!found) return {};
  return {found->ranks, negotiation::report_deadlock(*found, statuses)};
}

TEST(Deadlock, OfTwoOrdersIsFound) {
  const auto [ranks, text] =
      deadlock_of({waiting(0, {"a"}), waiting(1, {"b"})}, RankSet::range(0, 1));
  EXPECT_EQ(ranks, RankSet::range(0, 1));
  EXPECT_THAT(text, HasSubstr("likely deadlock: ranks 0-1 wait for each other"));
  EXPECT_THAT(text, HasSubstr("\n  allreduce \"a\" is missing on rank 1"));
  EXPECT_THAT(text, HasSubstr("\n  allreduce \"b\" is missing on rank 0"));
  EXPECT_THAT(text, HasSubstr("\n  rank 0: waiting in Kolo for allreduce \"a\" (10.0 s)"));
}

TEST(Deadlock, IsNoneWhileARankMayGoOn) {
  const RankSet world = RankSet::range(0, 2);
  EXPECT_TRUE(deadlock_of({waiting(0, {"a"}), waiting(1, {"a"}), outside(2)}, world).first.empty());
  // Rank 2 will complete "c", and then perhaps submit "a".
  EXPECT_TRUE(
      deadlock_of({waiting(0, {"a"}), waiting(1, {"a", "b"}), outside(2)}, world).first.empty());
  RankStatus silent = waiting(1, {"b"});
  silent.state = ProcessState::stopped;
  EXPECT_TRUE(deadlock_of({waiting(0, {"a"}), silent, outside(2)}, world).first.empty());
}

TEST(Deadlock, MayBeOfSomeRanksOnly) {
  const RankSet world = RankSet::range(0, 3);
  EXPECT_EQ(
      deadlock_of({waiting(0, {"a"}), waiting(1, {"b"}), outside(2), outside(3)}, world).first,
      RankSet::range(0, 1));
  // Rank 1's other operation is one of a set whose members have all submitted it: it completes.
  RankStatus goes_on = waiting(1, {"b"});
  goes_on.operations.push_back({{.name = "c", .set = 1}, OperationType::allreduce, 1s});
  goes_on.pending = 2;
  EXPECT_TRUE(
      deadlock_of({waiting(0, {"a"}), goes_on, outside(2), outside(3)}, world, RankSet::of(1))
          .first.empty());
}

TEST(Deadlock, ARankWithMoreThanIsListedCountsOnlyIfAllWait) {
  RankStatus many = waiting(1, {"b"});
  many.pending = 100;
  EXPECT_TRUE(
      deadlock_of({waiting(0, {"a"}), many, outside(2)}, RankSet::range(0, 2)).first.empty());
  EXPECT_EQ(deadlock_of({waiting(0, {"a"}), many}, RankSet::range(0, 1)).first,
            RankSet::range(0, 1));
}

TEST(Deadlock, IsReportedAtOnceAndOnce) {
  std::vector<RankStatus> statuses{waiting(0, {"a"}), waiting(1, {"b"})};
  Simulation simulation(one_host(2, statuses));
  simulation.submit(0, {.name = "a"}, floats(1));
  simulation.submit(1, {.name = "b"}, floats(1));
  simulation.run();
  for (int i = 0; i < 3; ++i) {
    simulation.negotiator(0).on_blocked(statuses);
    simulation.pass_time(1s);
  }
  ASSERT_EQ(simulation.reports(0).size(), 1U);
  EXPECT_THAT(simulation.reports(0)[0], HasSubstr("likely deadlock"));
}

TEST(Deadlock, IsToldAgainIfItGrowsOrComesBack) {
  std::vector<RankStatus> statuses{waiting(0, {"a"}), waiting(1, {"b"}), waiting(2, {"b"})};
  Simulation simulation(one_host(3, statuses));
  for (int rank = 0; rank < 3; ++rank)
    simulation.submit(rank, {.name = rank == 0 ? "a" : "b"}, floats(1));
  simulation.run();
  const auto reports_after = [&](bool last_is_blocked) {
    statuses[2].blocked = last_is_blocked;
    simulation.negotiator(0).on_blocked(statuses);
    simulation.pass_time(1s);
    return simulation.reports(0).size();
  };
  EXPECT_EQ(reports_after(false), 1U);
  EXPECT_EQ(reports_after(true), 2U);
  EXPECT_EQ(reports_after(false), 2U);
  EXPECT_EQ(reports_after(true), 2U);
  simulation.negotiator(0).on_blocked({outside(0), outside(1), outside(2)});
  EXPECT_EQ(reports_after(true), 3U);
}

TEST(Deadlock, OfSeveralHostsIsFoundByAsking) {
  const std::vector<RankStatus> all{waiting(0, {"a"}), waiting(1, {"a"}), waiting(2, {"b"}),
                                    waiting(3, {"b"})};
  const auto host = [&](int rank) {
    return std::vector<RankStatus>{all[static_cast<std::size_t>(rank)],
                                   all[static_cast<std::size_t>(rank) + 1]};
  };
  Simulation simulation({.node_of = even_nodes(4, 2), .seed = 4, .statuses = [&](int rank) {
                           return rank % 2 == 0 ? host(rank) : std::vector<RankStatus>{};
                         }});
  for (int rank = 0; rank < 4; ++rank)
    simulation.submit(rank, {.name = rank < 2 ? "a" : "b"}, floats(1));
  simulation.run();
  simulation.pass_time(5s);
  simulation.negotiator(0).on_blocked(host(0));
  simulation.run();
  simulation.pass_time(1s);
  ASSERT_EQ(simulation.reports(0).size(), 1U);
  EXPECT_THAT(simulation.reports(0)[0],
              HasSubstr("likely deadlock: ranks 0-3 wait for each other"));
}

/// Two ranks wait for each other, each by another name, and time is told for both at once.
void stall_by_turns(const std::string& first, const std::string& second) {
  SCOPED_TRACE(first + " before " + second);
  std::vector<RankStatus> statuses;
  Simulation simulation(one_host(2, statuses));
  simulation.submit(0, {.name = first}, floats(1));
  simulation.run();
  simulation.pass_time(1us);
  simulation.submit(1, {.name = second}, floats(1));
  simulation.run();
  simulation.pass_time(100s);
  simulation.pass_time(1s);
  for (int rank = 0; rank < 2; ++rank) {
    const auto& failure = simulation.outcomes(rank).back().failure;
    ASSERT_TRUE(failure);
    EXPECT_EQ(failure->kind, FailureKind::stalled);
    EXPECT_EQ(failure->ranks, RankSet::of(1)) << rank;
    EXPECT_THAT(failure->message, HasSubstr('"' + first + '"')) << rank;
  }
}

TEST(StallReport, TheOldestStalls) {
  for (int i = 0; i < 10; ++i) {
    stall_by_turns("a" + std::to_string(i), "b");
    stall_by_turns("b", "a" + std::to_string(i));
  }
}

TEST(StallReport, OfThoseOfOneTimeTheOneThatMostWaitForStalls) {
  std::vector<RankStatus> statuses;
  Simulation simulation(one_host(4, statuses));
  simulation.submit(3, {.name = "wrong"}, floats(1));
  simulation.run();
  simulation.pass_time(50ms);
  for (int rank = 0; rank < 3; ++rank) simulation.submit(rank, {.name = "right"}, floats(1));
  simulation.run();
  simulation.pass_time(100s);
  simulation.pass_time(1s);
  EXPECT_EQ(simulation.outcomes(0).back().failure->ranks, RankSet::of(3));
}

TEST(StallReport, WhatIsMuchOlderStallsBeforeWhatMostWaitFor) {
  std::vector<RankStatus> statuses;
  Simulation simulation(one_host(4, statuses));
  simulation.submit(3, {.name = "old"}, floats(1));
  simulation.run();
  simulation.pass_time(1s);
  for (int rank = 0; rank < 3; ++rank) simulation.submit(rank, {.name = "new"}, floats(1));
  simulation.run();
  simulation.pass_time(100s);
  simulation.pass_time(1s);
  EXPECT_EQ(simulation.outcomes(3).back().failure->ranks, RankSet::range(0, 2));
}

/// Names of keys that are late at a time, with a limit of 10 s.
std::vector<std::string> late_at(negotiation::Tally& tally, negotiation::TimePoint now) {
  std::vector<std::string> names;
  for (const negotiation::Lag& lag : tally.late(10s, now)) names.push_back(lag.key.name);
  std::ranges::sort(names);
  return names;
}

TEST(Tally, ReturnsALateKeyOnceWithinItsAge) {
  const negotiation::TimePoint start(100s);
  negotiation::Tally tally(RankSet::range(0, 1));
  const auto submit = [&](const std::string& name, std::chrono::seconds when) {
    tally.add({.name = name}, floats(1), RankSet::of(0), start + when);
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(late_at(tally, start), Names{});
  submit("a", 1s);
  EXPECT_EQ(late_at(tally, start + 2s), Names{});
  submit("b", 5s);
  EXPECT_EQ(late_at(tally, start + 11s), Names{"a"});
  EXPECT_EQ(late_at(tally, start + 14s), Names{});
  EXPECT_EQ(late_at(tally, start + 15s), Names{"b"});
  // Ranks below have waited for longer than the tally knows of the key.
  tally.add({{.name = "c"}, OperationType::allreduce, RankSet::of(1), 30s}, start + 16s);
  EXPECT_EQ(late_at(tally, start + 17s), Names{"c"});
  EXPECT_EQ(late_at(tally, start + 21s), Names{"a"});
  EXPECT_EQ(late_at(tally, start + 27s), (Names{"b", "c"}));
}

}  // namespace
}  // namespace kolo::internal::test
