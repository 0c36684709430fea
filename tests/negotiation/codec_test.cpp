#include "negotiation/codec.hpp"

#include <gtest/gtest.h>

#include <random>

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

void expect_equal(const Readiness& a, const Readiness& b) {
  EXPECT_EQ(a.key, b.key);
  EXPECT_EQ(a.others, b.others);
  ASSERT_EQ(a.variants.size(), b.variants.size());
  for (std::size_t i = 0; i < a.variants.size(); ++i) {
    EXPECT_EQ(a.variants[i].descriptor, b.variants[i].descriptor);
    EXPECT_EQ(a.variants[i].ranks, b.variants[i].ranks);
  }
}

TEST(Codec, UpwardComesBackAsItWas) {
  const Upward sent = some_upward();
  const Envelope envelope = decode(encode(42, sent));
  EXPECT_EQ(envelope.session, 42U);
  const auto& got = std::get<Upward>(envelope.content);
  EXPECT_EQ(got.epoch, sent.epoch);
  EXPECT_EQ(got.joins, sent.joins);
  EXPECT_EQ(got.slots, sent.slots);
  ASSERT_EQ(got.ready.size(), 2U);
  expect_equal(got.ready[0], sent.ready[0]);
  expect_equal(got.ready[1], sent.ready[1]);
  ASSERT_EQ(got.departures.size(), 1U);
  EXPECT_EQ(got.departures[0].rank, 4);
  EXPECT_FALSE(got.departures[0].clean);
  EXPECT_EQ(got.departures[0].reason, sent.departures[0].reason);
  ASSERT_EQ(got.lags.size(), 1U);
  EXPECT_EQ(got.lags[0].key, sent.lags[0].key);
  EXPECT_EQ(got.lags[0].type, sent.lags[0].type);
  EXPECT_EQ(got.lags[0].submitted, sent.lags[0].submitted);
  EXPECT_EQ(got.lags[0].waited, sent.lags[0].waited);
}

TEST(Codec, DownwardComesBackAsItWas) {
  const Envelope envelope = decode(encode(1, some_downward()));
  const auto& got = std::get<Downward>(envelope.content);
  ASSERT_EQ(got.entries.size(), 9U);
  for (std::size_t i = 0; i < 9; ++i) EXPECT_EQ(got.entries[i].sequence, 7 + i);
  const auto& batch = std::get<BatchEntry>(got.entries[0].body);
  EXPECT_EQ(batch.set, 4);
  EXPECT_EQ(batch.absent, RankSet::of(6));
  EXPECT_EQ(batch.slots, std::get<BatchEntry>(some_downward().entries[0].body).slots);
  ASSERT_EQ(batch.spelled.size(), 2U);
  EXPECT_EQ(batch.spelled[0].descriptor, every_field());
  EXPECT_EQ(batch.spelled[0].slot, Slot{8191});
  EXPECT_EQ(batch.spelled[1].key.number, 2U);
  EXPECT_FALSE(batch.spelled[1].slot);
  expect_equal(std::get<MismatchEntry>(got.entries[1].body).conflict, some_upward().ready.front());
  EXPECT_EQ(std::get<MismatchEntry>(got.entries[1].body).absent, RankSet::of(8));
  EXPECT_TRUE(std::get<DepartureEntry>(got.entries[2].body).departure.clean);
  EXPECT_EQ(std::get<StallEntry>(got.entries[3].body).lag.waited.count(), 61000);
  EXPECT_EQ(std::get<StallEntry>(got.entries[3].body).missing, RankSet::range(1, 2));
  EXPECT_TRUE(std::holds_alternative<EndEntry>(got.entries[4].body));
  EXPECT_EQ(std::get<JoinEntry>(got.entries[5].body).last, 3);
  const auto& added = std::get<AddSetEntry>(got.entries[6].body);
  EXPECT_EQ(added.key, (Key{.number = 9}));
  EXPECT_EQ(added.set, 2);
  EXPECT_EQ(added.ranks, RankSet::range(0, 3));
  EXPECT_EQ(std::get<RemoveSetEntry>(got.entries[7].body).set, 2);
  const auto& plan = std::get<PlanEntry>(got.entries[8].body);
  EXPECT_EQ(plan.epoch, 5U);
  EXPECT_EQ(plan.usual, std::chrono::nanoseconds(1234));
  ASSERT_EQ(plan.batches.size(), 2U);
  ASSERT_EQ(plan.batches[0].size(), 2U);
  EXPECT_EQ(plan.batches[0][0].key, (Key{.name = "a"}));
  EXPECT_EQ(plan.batches[0][0].descriptor, every_field());
  EXPECT_EQ(plan.batches[0][0].step_stride, 1);
  EXPECT_EQ(plan.batches[0][1].key, (Key{.number = 6}));
  EXPECT_EQ(plan.batches[0][1].number_stride, 2U);
  EXPECT_TRUE(plan.batches[1].empty());
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
