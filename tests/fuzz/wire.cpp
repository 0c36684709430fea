// Control messages: any message that is read comes back the same when it is written and read again.
#include <limits>
#include <variant>

#include "negotiation/codec.hpp"
#include "samples.hpp"
#include "target.hpp"

namespace kolo::fuzz {
namespace {

using namespace negotiation;

std::vector<std::byte> encode_again(const Envelope& envelope) {
  return std::visit([&](const auto& content) { return encode(envelope.session, content); },
                    envelope.content);
}

bool run(Bytes bytes) {
  Envelope first;
  try {
    first = decode(std::as_bytes(bytes));
  } catch (const ProtocolError&) {
    return false;
  }
  const Envelope second = decode(encode_again(first));
  require(first.session == second.session && first.content == second.content,
          "a message is another one when it is written and read again");
  return true;
}

template <typename Message>
Seed seed_of(const std::string& name, const Message& message) {
  const std::vector<std::byte> bytes = encode(42, message);
  return {name, {reinterpret_cast<const char*>(bytes.data()), bytes.size()}};
}

std::vector<Seed> upward_seeds() {
  std::vector<Seed> seeds{seed_of("upward-empty", Upward{})};
  Upward bits;
  bits.epoch = 3;
  for (const Slot slot : {0U, 1U, 63U, 64U, 200U}) bits.slots.insert(slot);
  seeds.push_back(seed_of("upward-bits", bits));
  Upward joins;
  joins.joins = {2, 0};
  seeds.push_back(seed_of("upward-joins", joins));
  Upward ready;
  ready.ready.push_back({{.name = "weight"}, {{sample_descriptor(), sample_ranks()}}});
  ready.ready.push_back({{.number = 5, .set = 2}, {{{}, RankSet::of(1)}, {{}, RankSet::of(3)}}});
  seeds.push_back(seed_of("upward-ready", ready));
  ready.ready[1].others = RankSet::of(12);
  seeds.push_back(seed_of("upward-conflict", ready));
  Upward departures;
  departures.departures.push_back({4, false, "an exception"});
  departures.departures.push_back({5});
  seeds.push_back(seed_of("upward-departures", departures));
  Upward late;
  late.lags.push_back({{.name = "late"},
                       OperationType::broadcast_text,
                       sample_ranks(),
                       std::chrono::milliseconds(61000)});
  late.statuses = {sample_status(), {}};
  seeds.push_back(seed_of("upward-late", late));
  return seeds;
}

std::vector<Seed> downward_seeds() {
  BatchEntry batch{.set = 4, .absent = RankSet::of(6)};
  batch.slots.insert(65);
  batch.spelled.push_back({{.name = "a"}, sample_descriptor(), Slot{8191}});
  batch.spelled.push_back({{.number = 2}, {}});
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
      {"departure", {12, DepartureEntry{{1, true, ""}}}},
      {"stall", {13, StallEntry{lag, RankSet::range(1, 2), "ranks 1-2: outside Kolo"}}},
      {"inquiry", {14, InquiryEntry{{.number = join_number}}}},
      {"end", {15, EndEntry{}}},
      {"plan", {16, plan}}};
  std::vector<Seed> seeds{seed_of("downward-empty", Downward{})};
  Downward all;
  for (const auto& [name, entry] : entries) {
    seeds.push_back(seed_of("downward-" + name, Downward{{entry}}));
    all.entries.push_back(entry);
  }
  seeds.push_back(seed_of("downward-all", all));
  return seeds;
}

std::vector<Seed> seeds() {
  std::vector<Seed> all = upward_seeds();
  for (Seed& seed : downward_seeds()) all.push_back(std::move(seed));
  return all;
}

}  // namespace

const Target wire_target{.name = "wire", .most_bytes = 2048, .run = run, .seeds = seeds};

}  // namespace kolo::fuzz
