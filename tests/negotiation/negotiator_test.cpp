// SPDX-License-Identifier: Apache-2.0
// The rules of agreement, one at a time. simulation_test.cpp adds random schedules.
#include "negotiation/protocol/negotiator.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <utility>

#include "negotiation/protocol/tree.hpp"
#include "negotiation/wire/codec.hpp"
#include "simulation.hpp"

namespace kolo::internal::test {
namespace {

using negotiation::Negotiator;

const Settings defaults{};
const Key weight{.name = "weight"};
const Key bias{.name = "bias"};

/// The message of the failure that both ranks of a pair get for `key` when they submit a and b.
std::string mismatch(const Descriptor& a, const Descriptor& b) {
  Simulation simulation({.node_of = even_nodes(2, 2)});
  simulation.submit(0, weight, a);
  simulation.submit(1, weight, b);
  simulation.run();
  expect_consistent(simulation);
  for (int rank = 0; rank < 2; ++rank) {
    const Outcome& outcome = simulation.outcomes(rank).at(0);
    if (!outcome.failure || outcome.failure->kind != FailureKind::mismatch) return "no mismatch";
  }
  EXPECT_EQ(simulation.outcomes(0)[0].failure->message, simulation.outcomes(1)[0].failure->message);
  return simulation.outcomes(0)[0].failure->message;
}

TEST(Negotiator, NothingRunsUntilAllHaveSubmitted) {
  Simulation simulation({.node_of = even_nodes(3, 3)});
  simulation.submit(0, weight, floats(4));
  simulation.submit(1, weight, floats(4));
  simulation.run();
  EXPECT_TRUE(simulation.log(0).empty());
  simulation.submit(2, weight, floats(4));
  simulation.run();
  EXPECT_EQ(simulation.log(0).size(), 1U);
  expect_consistent(simulation);
}

TEST(Negotiator, EveryDifferenceIsAnsweredByName) {
  const Descriptor base = floats(4);
  Descriptor other = base;
  EXPECT_EQ(mismatch(base, base), "no mismatch");
  other.tensors.front().shape = Shape{2, 2};
  EXPECT_EQ(mismatch(base, other),
            "allreduce \"weight\": the ranks disagree: shape [4] on rank 0, [2, 2] on rank 1");
  other = base;
  other.tensors.front().dtype = DType::f64;
  EXPECT_NE(mismatch(base, other).find("dtype f32 on rank 0, f64 on rank 1"), std::string::npos);
  other = base;
  other.op = ReduceOp::average;
  EXPECT_NE(mismatch(base, other).find("reduce op sum on rank 0, average on rank 1"),
            std::string::npos);
  other = base;
  other.prescale = 0.5;
  EXPECT_NE(mismatch(base, other).find("prescale 1 on rank 0, 0.5 on rank 1"), std::string::npos);
  other = base;
  other.postscale = 3;
  EXPECT_NE(mismatch(base, other).find("postscale 1 on rank 0, 3 on rank 1"), std::string::npos);
  other = base;
  other.step = 8;
  EXPECT_NE(mismatch(base, other).find("optimizer step 0 on rank 0, 8 on rank 1"),
            std::string::npos);
  other = base;
  other.device = {DeviceType::cuda, 1};
  EXPECT_NE(mismatch(base, other).find("device cpu on rank 0, cuda:1 on rank 1"),
            std::string::npos);
  other = base;
  other.compression = Compression::bf16;
  EXPECT_NE(mismatch(base, other).find("compression none on rank 0, bf16 on rank 1"),
            std::string::npos);
  other = base;
  other.average_over = AverageOver::present;
  EXPECT_NE(mismatch(base, other).find("average over all on rank 0, present on rank 1"),
            std::string::npos);
  other = base;
  other.alone = true;
  EXPECT_NE(mismatch(base, other).find("fuse exactly false on rank 0, true on rank 1"),
            std::string::npos);
  Descriptor broadcast = base;
  broadcast.type = OperationType::broadcast;
  broadcast.root = 0;
  EXPECT_EQ(mismatch(base, broadcast),
            "operation \"weight\": the ranks disagree: operation allreduce on rank 0, broadcast on "
            "rank 1");
  other = broadcast;
  other.root = 1;
  EXPECT_NE(mismatch(broadcast, other).find("root 0 on rank 0, 1 on rank 1"), std::string::npos);
}

TEST(Negotiator, WhatDiffersInAGroupIsNamed) {
  Descriptor base = floats(4);
  base.tensors = {{DType::f32, Shape(4)}, {DType::bf16, Shape{2, 2}}, {DType::f32, Shape(1)}};
  Descriptor other = base;
  other.tensors[1].shape = Shape{2, 3};
  EXPECT_EQ(
      mismatch(base, other),
      "allreduce \"weight\": the ranks disagree: shape of tensor 1 [2, 2] on rank 0, [2, 3] on "
      "rank 1");
  other = base;
  other.tensors[2].dtype = DType::f64;
  EXPECT_NE(mismatch(base, other).find("dtype of tensor 2 f32 on rank 0, f64 on rank 1"),
            std::string::npos);
  other.tensors.pop_back();
  EXPECT_NE(mismatch(base, other).find("number of tensors 3 on rank 0, 2 on rank 1"),
            std::string::npos);
}

TEST(Negotiator, ManyDifferentDescriptorsAreBounded) {
  constexpr int ranks = 100;
  Simulation simulation({.node_of = even_nodes(ranks, 10)});
  for (int rank = 0; rank < ranks; ++rank) simulation.submit(rank, weight, floats(rank));
  simulation.run();
  expect_consistent(simulation);
  const std::string message = simulation.outcomes(0)[0].failure->message;
  EXPECT_NE(message.find("further variants on ranks"), std::string::npos);
  EXPECT_EQ(simulation.outcomes(0)[0].failure->ranks, RankSet::range(0, ranks - 1));
  EXPECT_LT(message.size(), 1000U);
}

TEST(Negotiator, ReadyTensorsTravelTogetherUpToTheThreshold) {
  const auto submit = [&](Negotiator& negotiator, std::uint64_t ticket, std::int64_t elements) {
    negotiator.on_submit(ticket, {.name = std::to_string(ticket)}, floats(elements));
  };
  const Settings settings{.fusion_threshold = 40};
  Negotiator negotiator(settings, {.place = negotiation::build_tree(even_nodes(1, 1))[0]});
  submit(negotiator, 0, 4);    // 16 bytes
  submit(negotiator, 1, 100);  // too much beside another
  submit(negotiator, 2, 6);    // 24 bytes: just fits
  submit(negotiator, 3, 1);
  const negotiation::Actions first = negotiator.take();
  ASSERT_EQ(first.executes.size(), 2U);  // two batches may be under way
  EXPECT_EQ(first.executes[0].tickets, (std::vector<negotiation::Ticket>{0, 2}));
  EXPECT_EQ(first.executes[1].tickets, (std::vector<negotiation::Ticket>{1}));
  submit(negotiator, 4, 1);
  EXPECT_TRUE(negotiator.take().executes.empty());
  negotiator.on_done(world_set);
  const negotiation::Actions second = negotiator.take();
  ASSERT_EQ(second.executes.size(), 1U);  // what became ready meanwhile leaves together
  EXPECT_EQ(second.executes[0].tickets, (std::vector<negotiation::Ticket>{3, 4}));
}

TEST(Negotiator, AChangedShapeTravelsInFullAndIsRemembered) {
  Simulation simulation({.node_of = even_nodes(4, 2)});
  for (const std::int64_t elements : {1, 1, 1, 2, 2, 1}) {
    for (int rank = 0; rank < 4; ++rank) simulation.submit(rank, weight, floats(elements));
    simulation.run();
  }
  expect_consistent(simulation);
  for (const Outcome& outcome : simulation.outcomes(3)) EXPECT_TRUE(outcome.batch);
  // A slot (as before) on some ranks and a new shape on others is a disagreement.
  for (int rank = 0; rank < 4; ++rank) simulation.submit(rank, weight, floats(rank == 1 ? 9 : 1));
  simulation.run();
  EXPECT_NE(
      simulation.outcomes(2).back().failure->message.find("[1] on ranks 0, 2-3, [9] on rank 1"),
      std::string::npos)
      << simulation.outcomes(2).back().failure->message;
}

/// Ranks in a chain, one on each host, so that reports pass a relay. Messages arrive when they are
/// taken, except those for rank 1, which wait until it reads.
class Chain {
 public:
  explicit Chain(int ranks, Settings settings) : settings_(std::move(settings)) {
    std::vector<int> hosts(static_cast<std::size_t>(ranks));
    std::iota(hosts.begin(), hosts.end(), 0);
    for (const negotiation::TreePosition& place : negotiation::build_tree(hosts, /*arity=*/1))
      ranks_.push_back(std::make_unique<Negotiator>(
          settings_, negotiation::NegotiatorOptions{.place = place, .session = 1}));
  }

  Negotiator& at(int rank) { return *ranks_[static_cast<std::size_t>(rank)]; }
  /// The batches that the rank executes now. Their ends are reported by the caller.
  std::vector<SetId> take(int rank) {
    const negotiation::Actions actions = at(rank).take();
    for (const negotiation::Send& send : actions.sends) {
      if (send.peer == 1) {
        for_relay_.emplace_back(rank, send.message);
      } else {
        at(send.peer).on_message(rank, send.message);
      }
    }
    std::vector<SetId> batches;
    for (const negotiation::Execute& execute : actions.executes) batches.push_back(execute.set);
    return batches;
  }
  void let_relay_read() {
    for (const auto& [from, message] : std::exchange(for_relay_, {}))
      at(1).on_message(from, message);
  }
  /// Lets all ranks read and take until nothing is left. Returns the number of batches of each.
  std::vector<int> settle() {
    std::vector<int> batches(ranks_.size());
    for (std::size_t turn = 0; turn < 4 * ranks_.size(); ++turn) {
      let_relay_read();
      for (std::size_t rank = 0; rank < ranks_.size(); ++rank)
        batches[rank] += static_cast<int>(take(static_cast<int>(rank)).size());
    }
    return batches;
  }

 private:
  const Settings settings_;
  std::vector<std::unique_ptr<Negotiator>> ranks_{};
  std::vector<std::pair<int, std::vector<std::byte>>> for_relay_{};
};

/// The relay was stopped: it finds the news that an operation is late together with its end.
TEST(Negotiator, AnOperationThatIsCompleteIsNotLateAnyMore) {
  Chain chain(4, {.stall_warning = std::chrono::seconds(60)});
  const negotiation::TimePoint begin{};
  for (const int rank : {0, 1, 2}) chain.at(rank).on_submit(1, weight, floats(4));
  EXPECT_EQ(chain.settle(), std::vector<int>(4, 0));
  chain.at(2).on_time(begin + std::chrono::seconds(60));
  EXPECT_TRUE(chain.take(2).empty());  // it is late
  chain.at(3).on_submit(1, weight, floats(4));
  EXPECT_TRUE(chain.take(3).empty());
  EXPECT_TRUE(chain.take(2).empty());  // it is complete
  EXPECT_EQ(chain.settle(), std::vector<int>(4, 1));
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_TRUE(chain.at(rank).pending().empty()) << "rank " << rank;
    EXPECT_FALSE(chain.at(rank).outstanding()) << "rank " << rank;
  }
}

TEST(Negotiator, AReportSaysOfAKeyThatItIsLateOrThatItIsReady) {
  negotiation::OutgoingReports reports;
  for (const Key& key : {weight, bias})
    reports.current().lags.push_back({key, OperationType::allreduce, RankSet::of(1), {}});
  reports.add({weight, {{floats(4), RankSet::of(1)}}}, std::nullopt);
  const std::vector<negotiation::ReadinessReport> taken = reports.take(0, 0);
  ASSERT_EQ(taken.size(), 1U);
  ASSERT_EQ(taken.front().lags.size(), 1U);
  EXPECT_EQ(taken.front().lags.front().key, bias);
}

/// A relay may still hold a lag that has come after it had sent others.
TEST(Negotiator, ALagDoesNotEnterWhatTheSameReportCompletes) {
  Negotiator root(defaults, {.place = negotiation::build_tree(std::vector<int>{0, 1})[0]});
  root.on_submit(1, weight, floats(4));
  negotiation::ReadinessReport report;
  report.ready.push_back({weight, {{floats(4), RankSet::of(1)}}});
  report.lags.push_back(
      {weight, OperationType::allreduce, RankSet::of(1), std::chrono::seconds(60)});
  root.on_message(1, negotiation::encode(0, report));
  EXPECT_EQ(root.take().executes.size(), 1U);
  EXPECT_TRUE(root.pending().empty());
}

TEST(Negotiator, TheSessionEndsWhenAllThatHaveLeftHaveExecutedTheirBatches) {
  Chain chain(3, {});
  for (int rank = 0; rank < 3; ++rank) chain.at(rank).on_submit(1, weight, floats(4));
  EXPECT_EQ(chain.settle(), std::vector<int>(3, 1));
  for (int rank = 0; rank < 3; ++rank) chain.at(rank).on_leave("");
  EXPECT_EQ(chain.settle(), std::vector<int>(3, 0));
  for (const int last : {2, 0, 1}) {
    for (int rank = 0; rank < 3; ++rank) {
      EXPECT_TRUE(chain.at(rank).left());
      EXPECT_FALSE(chain.at(rank).ended()) << "rank " << last << " still executes a batch";
    }
    chain.at(last).on_done(world_set);
    EXPECT_EQ(chain.settle(), std::vector<int>(3, 0));
  }
  for (int rank = 0; rank < 3; ++rank) EXPECT_TRUE(chain.at(rank).ended());
}

TEST(Negotiator, AfterADepartureNothingNewCanComplete) {
  Simulation simulation({.node_of = even_nodes(2, 1)});
  for (int rank = 0; rank < 2; ++rank) simulation.submit(rank, weight, floats(4));
  simulation.run();
  simulation.leave(0);
  simulation.submit(1, bias, floats(4));
  simulation.run();
  expect_consistent(simulation);
  EXPECT_EQ(simulation.log(1).size(), 1U);
  const Outcome& late = simulation.outcomes(1).back();
  ASSERT_TRUE(late.failure);
  EXPECT_EQ(late.failure->kind, FailureKind::peer_left);
  EXPECT_EQ(late.failure->message, "allreduce \"bias\": rank 0 left the session: of the test");
}

TEST(Negotiator, WhatIsSubmittedBeforeItIsToldTheTimeIsNotLate) {
  using namespace std::chrono_literals;
  const negotiation::TimePoint start{1000h};
  const Settings settings{.stall_warning = 1h, .stall_shutdown = 1h};
  Negotiator root(settings, {.place = negotiation::build_tree(even_nodes(2, 2))[0], .now = start});
  root.on_submit(0, weight, floats(4));
  root.on_time(start + 1min);
  EXPECT_TRUE(root.take().empty());
  root.on_time(start + 61min);
  EXPECT_FALSE(root.take().empty());  // it asks who has it
}

TEST(Negotiator, MessagesOfAnotherSessionAreIgnored) {
  const auto places = negotiation::build_tree(even_nodes(2, 2));
  Negotiator root(defaults, {.place = places[0], .session = 1});
  negotiation::ReadinessReport report;
  report.departures.push_back({1, ""});
  root.on_message(1, negotiation::encode(2, report));
  EXPECT_TRUE(root.take().empty());
  root.on_message(1, negotiation::encode(1, report));
  EXPECT_FALSE(root.take().empty());
}

TEST(Negotiator, ARankThatCountsTwiceIsRefused) {
  const auto places = negotiation::build_tree(even_nodes(3, 3));
  negotiation::ReadinessReport report;
  report.ready.push_back({weight, {{floats(4), RankSet::of(1)}}});
  Negotiator root(defaults, {.place = places[0]});
  root.on_submit(0, weight, floats(4));
  root.on_message(1, negotiation::encode(0, report));
  // Rank 2 has not submitted it: counted alone, three submissions would be enough.
  EXPECT_THROW(root.on_message(1, negotiation::encode(0, report)), negotiation::ProtocolError);
  const auto expect_refused = [&](const std::vector<int>& joins, const std::vector<int>& leavers) {
    negotiation::ReadinessReport one;
    one.joins = joins;
    for (const int rank : leavers) one.departures.push_back({rank, ""});
    EXPECT_THROW(root.on_message(1, negotiation::encode(0, one)), negotiation::ProtocolError);
  };
  expect_refused({1, 1}, {});
  expect_refused({2}, {});  // not below rank 1
  expect_refused({3}, {});  // the world has three ranks
  expect_refused({}, {1, 1});
}

TEST(Negotiator, MessagesAgainstTheRulesAreRefused) {
  const auto places = negotiation::build_tree(even_nodes(3, 3));
  Negotiator root(defaults, {.place = places[0]});
  Negotiator leaf(defaults, {.place = places[1]});
  EXPECT_THROW(root.on_message(0, negotiation::encode(0, negotiation::ReadinessReport{})),
               negotiation::ProtocolError);  // not a child
  EXPECT_THROW(leaf.on_message(2, negotiation::encode(0, negotiation::LogUpdate{})),
               negotiation::ProtocolError);  // not the parent
  negotiation::ReadinessReport unknown_slot;
  unknown_slot.slots.insert(3);
  EXPECT_THROW(root.on_message(1, negotiation::encode(0, unknown_slot)),
               negotiation::ProtocolError);
  negotiation::LogUpdate out_of_turn;
  out_of_turn.entries.push_back({5, negotiation::EndEntry{}});
  EXPECT_THROW(leaf.on_message(0, negotiation::encode(0, out_of_turn)), negotiation::ProtocolError);
  // A matter of the session, which does not pass it on.
  EXPECT_THROW(leaf.on_message(0, negotiation::encode(0, negotiation::Heartbeat{})),
               negotiation::ProtocolError);
  EXPECT_THROW(leaf.on_message(0, negotiation::encode(0, Failure{})), negotiation::ProtocolError);
}

}  // namespace
}  // namespace kolo::internal::test
