// SPDX-License-Identifier: Apache-2.0
// Control messages: any message that is read comes back the same when it is written and read again.
#include <limits>
#include <variant>

#include "negotiation/wire/codec.hpp"
#include "samples.hpp"
#include "target.hpp"

namespace kolo::internal::fuzz {
namespace {

using namespace negotiation;

void require_sense(const MessageBody& body) {
  if (const auto* heartbeat = std::get_if<Heartbeat>(&body))
    require(heartbeat->interval.count() >= 0 && heartbeat->interval <= Heartbeat::max_interval &&
                heartbeat->unresponsive_ancestor >= -1,
            "a heartbeat says what no rank sends");
  if (const auto* failure = std::get_if<Failure>(&body))
    require(failure->kind == FailureKind::peer_left || failure->kind == FailureKind::stalled,
            "a failure says what no rank sends");
}

bool run(Bytes bytes) {
  ControlMessage first;
  try {
    first = decode(std::as_bytes(bytes));
  } catch (const ProtocolError&) {
    return false;
  }
  require_sense(first.body);
  const ControlMessage second = decode(encode(first.session, first.body));
  require(first.session == second.session && first.body == second.body,
          "a message is another one when it is written and read again");
  return true;
}

Seed seed_of(const std::string& name, const MessageBody& body) {
  const std::vector<std::byte> bytes = encode(42, body);
  return {name, {reinterpret_cast<const char*>(bytes.data()), bytes.size()}};
}

std::vector<Seed> report_seeds() {
  std::vector<Seed> seeds{seed_of("report-empty", ReadinessReport{})};
  ReadinessReport bits;
  bits.epoch = 3;
  for (const CacheSlot slot : {0U, 1U, 63U, 64U, 200U}) bits.slots.insert(slot);
  seeds.push_back(seed_of("report-bits", bits));
  ReadinessReport joins;
  joins.joins = {2, 0};
  seeds.push_back(seed_of("report-joins", joins));
  ReadinessReport ready;
  ready.ready.push_back({{.name = "weight"}, {{sample_descriptor(), sample_ranks()}}});
  ready.ready.push_back({{.number = 5, .set = 2}, {{{}, RankSet::of(1)}, {{}, RankSet::of(3)}}});
  seeds.push_back(seed_of("report-ready", ready));
  ready.ready[1].others = RankSet::of(12);
  seeds.push_back(seed_of("report-conflict", ready));
  ReadinessReport departures;
  departures.departures.push_back({4, "an exception"});
  departures.departures.push_back({5});
  seeds.push_back(seed_of("report-departures", departures));
  ReadinessReport late;
  late.lags.push_back({{.name = "late"},
                       OperationType::broadcast_string,
                       sample_ranks(),
                       std::chrono::milliseconds(61000)});
  late.statuses = {sample_status(), {}};
  seeds.push_back(seed_of("report-late", late));
  return seeds;
}

std::vector<Seed> update_seeds() {
  BatchEntry batch{.set = 4, .absent = RankSet::of(6)};
  batch.slots.insert(65);
  batch.uncached.push_back({{.name = "a"}, sample_descriptor(), CacheSlot{8191}});
  batch.uncached.push_back({{.number = 2}, {}});
  const Lag lag{{.name = "late"}, OperationType::barrier, RankSet::of(0), {}};
  const Readiness conflict{
      {.name = "b"}, {{sample_descriptor(), RankSet::of(0)}, {{}, RankSet::of(1)}}, RankSet::of(2)};
  PlanEntry plan{.epoch = 5, .usual = std::chrono::nanoseconds(1234)};
  plan.batches = {{{{.name = "a"}, sample_descriptor(), 0, 1}, {{.number = 6}, {}, 2, 0}}, {}};
  const std::vector<std::pair<std::string, Entry>> entries{
      {"batch", {7, batch}},
      {"mismatch", {8, MismatchEntry{conflict, RankSet::of(8)}}},
      {"join", {9, JoinEntry{3}}},
      {"add-set", {10, AddSetEntry{{.number = 9}, 2, RankSet::range(0, 3)}}},
      {"remove-set", {11, RemoveSetEntry{{.number = 9}, 2}}},
      {"departure", {12, Departure{1, ""}}},
      {"stall", {13, StallEntry{lag, RankSet::range(1, 2), "ranks 1-2: outside Kolo"}}},
      {"inquiry", {14, InquiryEntry{{.number = join_number}}}},
      {"end", {15, EndEntry{}}},
      {"plan", {16, plan}}};
  std::vector<Seed> seeds{seed_of("update-empty", LogUpdate{})};
  LogUpdate all;
  for (const auto& [name, entry] : entries) {
    seeds.push_back(seed_of("update-" + name, LogUpdate{{entry}}));
    all.entries.push_back(entry);
  }
  seeds.push_back(seed_of("update-all", all));
  return seeds;
}

std::vector<Seed> session_seeds() {
  RankSet many = RankSet::range(2, 3);
  many.insert(RankSet::of(70'000));
  return {seed_of("heartbeat", Heartbeat{}),
          seed_of("heartbeat-unresponsive", Heartbeat{70'000, std::chrono::milliseconds(117)}),
          seed_of("paces", PaceReport{.ranks = {{.rank = 70'000, .host = "a", .steps = 7}},
                                      .operations = {{.name = "weight", .slowest = 1}}}),
          seed_of("failure", Failure{FailureKind::peer_left, "it is gone", "", many}),
          seed_of("failure-stalled",
                  Failure{FailureKind::stalled, "it does nothing", "weight", RankSet::of(1)}),
          seed_of("failure-empty", Failure{})};
}

std::vector<Seed> seeds() {
  std::vector<Seed> all = report_seeds();
  for (auto more : {update_seeds, session_seeds})
    for (Seed& seed : more()) all.push_back(std::move(seed));
  return all;
}

}  // namespace

const Target wire_target{.name = "wire", .max_bytes = 2048, .run = run, .seeds = seeds};

}  // namespace kolo::internal::fuzz
