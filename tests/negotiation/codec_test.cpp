// SPDX-License-Identifier: Apache-2.0
#include "negotiation/wire/codec.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <type_traits>

#include "base/enumerators.hpp"

namespace kolo::internal::negotiation {
namespace {

Descriptor every_field() {
  Descriptor descriptor;
  descriptor.type = OperationType::allreduce;
  descriptor.tensors = {{DType::bf16, Shape{64, 0, std::int64_t{1} << 40}},
                        {DType::i64, Shape{any_length, 3}},
                        {DType::boolean, {}}};
  descriptor.op = ReduceOp::adasum;
  descriptor.compression = Compression::bf16;
  descriptor.average_over = AverageOver::present;
  descriptor.alone = true;
  descriptor.ranks = RankSet::range(2, 5);
  descriptor.removed = 17;
  descriptor.root = 3;
  descriptor.prescale = 0.1;
  descriptor.postscale = -2.0;
  descriptor.device = {DeviceType::cuda, 7};
  descriptor.step = 123456789012;
  return descriptor;
}

ReadinessReport some_report() {
  ReadinessReport message;
  message.epoch = 77;
  message.removals = 5;
  message.joins = {7, 3};
  message.slots.insert(0);
  message.slots.insert(200);
  RankSet ranks = RankSet::range(0, 511);
  ranks.insert(RankSet::of(700));
  message.ready.push_back({{.name = "weight"},
                           {{every_field(), ranks}, {Descriptor{}, RankSet::of(9)}},
                           RankSet::of(12)});
  message.ready.push_back({{.number = 5, .set = 12}, {{Descriptor{}, RankSet::of(1)}}});
  message.departures.push_back({4, "an exception: \"x\""});
  message.lags.push_back(
      {{.name = "late"}, OperationType::broadcast_string, ranks, std::chrono::milliseconds(61000)});
  message.finished = RankSet::range(5, 6);
  return message;
}

LogUpdate some_update() {
  LogUpdate message;
  BatchEntry batch{.set = 4, .absent = RankSet::of(6)};
  batch.slots.insert(65);
  batch.uncached.push_back({{.name = "a"}, every_field(), CacheSlot{8191}});
  batch.uncached.push_back({{.number = 2}, Descriptor{}});
  message.entries.push_back({7, batch});
  message.entries.push_back({8, MismatchEntry{some_report().ready.front(), RankSet::of(8)}});
  message.entries.push_back({9, Departure{1, ""}});
  message.entries.push_back({10, StallEntry{some_report().lags.front(), RankSet::range(1, 2)}});
  message.entries.push_back({11, EndEntry{}});
  message.entries.push_back({12, JoinEntry{3}});
  message.entries.push_back({13, AddSetEntry{{.number = 9}, 2, RankSet::range(0, 3)}});
  message.entries.push_back({14, RemoveSetEntry{{.number = 9}, 2}});
  message.entries.push_back(
      {15, PlanEntry{5,
                     {{{{.name = "a"}, every_field(), 0, 1}, {{.number = 6}, {}, 2, 0}}, {}},
                     std::chrono::nanoseconds(1234)}});
  return message;
}

TEST(Codec, ReadinessReportComesBackAsItWas) {
  const ControlMessage message = decode(encode(42, some_report()));
  EXPECT_EQ(message.session, 42U);
  EXPECT_TRUE(std::get<ReadinessReport>(message.body) == some_report());
}

TEST(Codec, LogUpdateComesBackAsItWas) {
  const ControlMessage message = decode(encode(1, some_update()));
  EXPECT_TRUE(std::get<LogUpdate>(message.body) == some_update());
}

Failure some_failure() {
  RankSet ranks = RankSet::range(2, 3);
  ranks.insert(RankSet::of(70'000));
  return {FailureKind::stalled, "it does nothing", "weight", ranks};
}

TEST(Codec, FailuresComeBackAsTheyWere) {
  for (const Failure& failure : {some_failure(), Failure{}}) {
    const ControlMessage message = decode(encode(4711, failure));
    EXPECT_EQ(message.session, 4711U);
    EXPECT_EQ(std::get<Failure>(message.body), failure);
  }
}

TEST(Codec, HeartbeatsComeBackAsTheyWere) {
  using namespace std::chrono_literals;
  for (const Heartbeat& heartbeat : {Heartbeat{}, Heartbeat{70'000, 117ms}, Heartbeat{0, 0ns}})
    EXPECT_EQ(std::get<Heartbeat>(decode(encode(1, heartbeat)).body), heartbeat);
}

PaceReport some_paces() {
  using namespace std::chrono_literals;
  return {.ranks = {{.rank = 2,
                     .host = "node002",
                     .steps = 1200,
                     .step = 50ms,
                     .computing = 30ms,
                     .bytes_per_second = 1 << 20,
                     .waits_for = "allreduce \"x\" for 5 s"},
                    {.rank = 4}},
          .operations = {
              {.name = "layer30.weights", .set = 7, .longest = 20ms, .slowest = 2, .sum = 24ms},
              {.slowest = 0}}};
}

TEST(Codec, PacesComeBackAsTheyWere) {
  for (const PaceReport& report : {some_paces(), PaceReport{}})
    EXPECT_EQ(std::get<PaceReport>(decode(encode(1, report)).body), report);
}

TEST(Codec, EqualityOfMessagesSeesEveryPart) {
  ReadinessReport other = some_report();
  other.lags.front().submitted = {};
  EXPECT_FALSE(other == some_report());
  LogUpdate another = some_update();
  std::get<PlanEntry>(another.entries.back().body).batches.front().front().step_stride = 2;
  EXPECT_FALSE(another == some_update());
}

/// A message with `change` made to it, which the encoder does not look at.
template <typename Change>
void expect_refused(const char* what, Change change) {
  ReadinessReport up;
  up.ready.push_back({{.name = "x"}, {{Descriptor{}, RankSet::of(1)}}});
  LogUpdate down;
  down.entries.push_back({0, BatchEntry{.uncached = {{{.name = "x"}, Descriptor{}}}}});
  if constexpr (std::is_invocable_v<Change, ReadinessReport&>) {
    change(up);
  } else {
    change(down);
  }
  const auto reread = [&](const auto& message) { (void)decode(encode(1, message)); };
  if constexpr (std::is_invocable_v<Change, ReadinessReport&>) {
    EXPECT_THROW(reread(up), ProtocolError) << what;
  } else {
    EXPECT_THROW(reread(down), ProtocolError) << what;
  }
}

TEST(Codec, WhatNobodyCanMeanIsRefused) {
  const auto descriptor = [](ReadinessReport& up) -> Descriptor& {
    return up.ready.front().variants.front().descriptor;
  };
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  expect_refused("a scale", [&](ReadinessReport& up) { descriptor(up).prescale = NAN; });
  expect_refused("a scale", [&](ReadinessReport& up) { descriptor(up).postscale = -INFINITY; });
  expect_refused("a shape", [&](ReadinessReport& up) {
    descriptor(up).tensors = {{{}, Shape{most, 2}}};
  });
  expect_refused("a shape", [&](ReadinessReport& up) {
    descriptor(up).tensors = {{{}, Shape{3, -1}}};
  });
  expect_refused("a shape whose length of 0 comes late", [&](ReadinessReport& up) {
    descriptor(up).tensors = {{{}, Shape{std::int64_t{1} << 40, std::int64_t{1} << 40, 0}}};
  });
  expect_refused("a group", [&](ReadinessReport& up) {
    descriptor(up).tensors = {{{}, Shape{max_tensor_elements}}, {{}, Shape{1}}};
  });
  expect_refused("a length that may differ", [&](ReadinessReport& up) {
    descriptor(up).tensors = {{{}, Shape{3, any_length}}};
  });
  expect_refused("ranks", [](ReadinessReport& up) {
    up.ready.front().others = RankSet::range(0, std::numeric_limits<int>::max());
  });
  expect_refused("a set", [](ReadinessReport& up) { up.ready.front().key.set = -1; });
  expect_refused("who joins", [](ReadinessReport& up) { up.joins = {-1}; });
  expect_refused("who leaves", [](ReadinessReport& up) { up.departures.push_back({-1}); });
  for (const std::int64_t wait : {std::int64_t{-1}, most})
    expect_refused("a wait", [wait](ReadinessReport& up) {
      up.lags.push_back({{}, {}, {}, std::chrono::milliseconds(wait)});
    });
  expect_refused("nobody",
                 [](ReadinessReport& up) { up.ready.front().variants.front().ranks = {}; });
  expect_refused("no descriptor", [](ReadinessReport& up) { up.ready.front().variants.clear(); });
  expect_refused("a set",
                 [](LogUpdate& down) { down.entries.front().body = BatchEntry{.set = -1}; });
  expect_refused("who was last",
                 [](LogUpdate& down) { down.entries.front().body = JoinEntry{-1}; });
  expect_refused("a time", [](LogUpdate& down) {
    down.entries.front().body = PlanEntry{.usual = std::chrono::nanoseconds(-1)};
  });
}

TEST(Codec, RanksBeyondTheWorldAreRefused) {
  const auto expect_world = [](int ranks, const auto& body) {
    const std::vector<std::byte> bytes = encode(1, MessageBody(body));
    EXPECT_NO_THROW((void)decode(bytes, ranks));
    EXPECT_THROW((void)decode(bytes, ranks - 1), ProtocolError);
  };
  const auto entry = [](const EntryBody& body) { return LogUpdate{{{0, body}}}; };
  Descriptor from_last;
  from_last.root = 8;
  ReadinessReport report;
  report.joins = {8};
  expect_world(9, report);
  report.joins.clear();
  report.ready.push_back({{.name = "x"}, {{from_last, RankSet::of(0)}}});
  expect_world(9, report);
  report.ready.front() = {{.name = "x"}, {{Descriptor{}, RankSet::range(2, 4)}}, RankSet::of(5)};
  expect_world(6, report);
  expect_world(5, entry(BatchEntry{.absent = RankSet::range(1, 4)}));
  expect_world(5, entry(JoinEntry{4}));
  expect_world(5, entry(Departure{4, ""}));
  expect_world(5, entry(AddSetEntry{{.number = 9}, 2, RankSet::range(0, 4)}));
  expect_world(5, Failure{FailureKind::peer_left, "", "", RankSet::of(4)});
  expect_world(5, Heartbeat{4, std::chrono::milliseconds(1)});
  expect_world(5, some_paces());
  expect_world(5, PaceReport{.operations = {{.slowest = 4}}});
  const std::vector<std::byte> page = encode_status({.rank = 1, .awaited = RankSet::of(3)});
  EXPECT_EQ(decode_status(page, 4).awaited, RankSet::of(3));
  EXPECT_THROW((void)decode_status(page, 3), ProtocolError);
}

TEST(Codec, SessionMessagesThatNoRankSendsAreRefused) {
  using namespace std::chrono_literals;
  const auto expect_refused = [](const MessageBody& body) {
    EXPECT_THROW((void)decode(encode(1, body)), ProtocolError);
  };
  expect_refused(Heartbeat{-2, 1s});
  expect_refused(Heartbeat{-1, -1ns});
  expect_refused(Heartbeat{-1, Heartbeat::max_interval + 1ns});
  expect_refused(PaceReport{.ranks = {{.rank = 1, .step = -1ns}}});
  expect_refused(PaceReport{.ranks = {{.rank = 1, .computing = -1ns}}});
  // A rank's own error is a departure to others, and single operations end no session.
  for (const FailureKind kind :
       {FailureKind::backend, FailureKind::mismatch, FailureKind::shut_down,
        FailureKind{enumerator_count<FailureKind>}})
    expect_refused(Failure{kind, "gone"});
}

TEST(Codec, EnumeratorsThatThereAreNotAreRefused) {
  RankStatus status;
  status.state = ProcessState{enumerator_count<ProcessState>};
  EXPECT_THROW((void)decode_status(encode_status(status)), ProtocolError);
  status.state = ProcessState{enumerator_count<ProcessState> - 1};
  EXPECT_EQ(decode_status(encode_status(status)), status);
}

TEST(Codec, WhatIsCutShortIsRefused) {
  for (const MessageBody& body : {MessageBody(some_report()), MessageBody(some_failure()),
                                  MessageBody(Heartbeat{}), MessageBody(some_paces())}) {
    const std::vector<std::byte> whole = encode(1, body);
    for (std::size_t length = 0; length < whole.size(); length += 7)
      EXPECT_THROW((void)decode(std::span(whole).first(length)), ProtocolError) << length;
  }
}

TEST(Codec, DamagedBytesNeverDoHarm) {
  // Most damage is refused; some still reads as a message. Neither may read out of bounds (run
  // under the address sanitizer) or throw anything else.
  std::mt19937 random(1);
  int refused = 0;
  for (int round = 0; round < 3000; ++round) {
    std::vector<std::byte> bytes =
        round % 2 == 0 ? encode(1, some_report()) : encode(1, some_update());
    for (int i = 0; i < 4; ++i) bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    try {
      (void)decode(bytes);
    } catch (const ProtocolError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 1000);
}

}  // namespace
}  // namespace kolo::internal::negotiation
