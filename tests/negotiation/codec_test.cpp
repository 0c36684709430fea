#include "negotiation/codec.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <type_traits>

namespace kolo::negotiation {
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

Upward some_upward() {
  Upward message;
  message.epoch = 77;
  message.joins = {7, 3};
  message.slots.insert(0);
  message.slots.insert(200);
  RankSet ranks = RankSet::range(0, 511);
  ranks.insert(RankSet::of(700));
  message.ready.push_back({{.name = "weight"},
                           {{every_field(), ranks}, {Descriptor{}, RankSet::of(9)}},
                           RankSet::of(12)});
  message.ready.push_back({{.number = 5, .set = 12}, {{Descriptor{}, RankSet::of(1)}}});
  message.departures.push_back({4, false, "an exception: \"x\""});
  message.lags.push_back(
      {{.name = "late"}, OperationType::broadcast_text, ranks, std::chrono::milliseconds(61000)});
  return message;
}

Downward some_downward() {
  Downward message;
  BatchEntry batch{.set = 4, .absent = RankSet::of(6)};
  batch.slots.insert(65);
  batch.spelled.push_back({{.name = "a"}, every_field(), Slot{8191}});
  batch.spelled.push_back({{.number = 2}, Descriptor{}});
  message.entries.push_back({7, batch});
  message.entries.push_back({8, MismatchEntry{some_upward().ready.front(), RankSet::of(8)}});
  message.entries.push_back({9, DepartureEntry{{1, true, ""}}});
  message.entries.push_back({10, StallEntry{some_upward().lags.front(), RankSet::range(1, 2)}});
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

TEST(Codec, UpwardComesBackAsItWas) {
  const Envelope envelope = decode(encode(42, some_upward()));
  EXPECT_EQ(envelope.session, 42U);
  EXPECT_TRUE(std::get<Upward>(envelope.content) == some_upward());
}

TEST(Codec, DownwardComesBackAsItWas) {
  const Envelope envelope = decode(encode(1, some_downward()));
  EXPECT_TRUE(std::get<Downward>(envelope.content) == some_downward());
}

TEST(Codec, EqualityOfMessagesSeesEveryPart) {
  Upward other = some_upward();
  other.lags.front().submitted = {};
  EXPECT_FALSE(other == some_upward());
  Downward another = some_downward();
  std::get<PlanEntry>(another.entries.back().body).batches.front().front().step_stride = 2;
  EXPECT_FALSE(another == some_downward());
}

/// A message with `change` made to it, which the encoder does not look at.
template <typename Change>
void expect_refused(const char* what, Change change) {
  Upward up;
  up.ready.push_back({{.name = "x"}, {{Descriptor{}, RankSet::of(1)}}});
  Downward down;
  down.entries.push_back({0, BatchEntry{.spelled = {{{.name = "x"}, Descriptor{}}}}});
  if constexpr (std::is_invocable_v<Change, Upward&>) {
    change(up);
  } else {
    change(down);
  }
  const auto reread = [&](const auto& message) { (void)decode(encode(1, message)); };
  if constexpr (std::is_invocable_v<Change, Upward&>) {
    EXPECT_THROW(reread(up), ProtocolError) << what;
  } else {
    EXPECT_THROW(reread(down), ProtocolError) << what;
  }
}

TEST(Codec, WhatNobodyCanMeanIsRefused) {
  const auto descriptor = [](Upward& up) -> Descriptor& {
    return up.ready.front().variants.front().descriptor;
  };
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  expect_refused("a scale", [&](Upward& up) { descriptor(up).prescale = NAN; });
  expect_refused("a scale", [&](Upward& up) { descriptor(up).postscale = -INFINITY; });
  expect_refused("a shape", [&](Upward& up) { descriptor(up).tensors = {{{}, Shape{most, 2}}}; });
  expect_refused("a shape", [&](Upward& up) { descriptor(up).tensors = {{{}, Shape{3, -1}}}; });
  expect_refused("a length that may differ", [&](Upward& up) {
    descriptor(up).tensors = {{{}, Shape{3, any_length}}};
  });
  expect_refused("ranks", [](Upward& up) {
    up.ready.front().others = RankSet::range(0, std::numeric_limits<int>::max());
  });
  expect_refused("a set", [](Upward& up) { up.ready.front().key.set = -1; });
  expect_refused("who joins", [](Upward& up) { up.joins = {-1}; });
  expect_refused("who leaves", [](Upward& up) { up.departures.push_back({-1}); });
  for (const std::int64_t wait : {std::int64_t{-1}, most})
    expect_refused("a wait", [wait](Upward& up) {
      up.lags.push_back({{}, {}, {}, std::chrono::milliseconds(wait)});
    });
  expect_refused("no descriptor", [](Upward& up) { up.ready.front().variants.clear(); });
  expect_refused("a set",
                 [](Downward& down) { down.entries.front().body = BatchEntry{.set = -1}; });
  expect_refused("who was last", [](Downward& down) { down.entries.front().body = JoinEntry{-1}; });
  expect_refused("a time", [](Downward& down) {
    down.entries.front().body = PlanEntry{.usual = std::chrono::nanoseconds(-1)};
  });
}

TEST(Codec, WhatIsCutShortIsRefused) {
  const std::vector<std::byte> whole = encode(1, some_upward());
  for (std::size_t length = 0; length < whole.size(); length += 7)
    EXPECT_THROW((void)decode(std::span(whole).first(length)), ProtocolError) << length;
}

TEST(Codec, DamagedBytesNeverDoHarm) {
  // Most damage is refused; some still reads as a message. Neither may read out of bounds (run
  // under the address sanitizer) or throw anything else.
  std::mt19937 random(1);
  int refused = 0;
  for (int round = 0; round < 3000; ++round) {
    std::vector<std::byte> bytes =
        round % 2 == 0 ? encode(1, some_upward()) : encode(1, some_downward());
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
}  // namespace kolo::negotiation
